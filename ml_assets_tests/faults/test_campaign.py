"""A round in each place, with a fault that is named; a plant shows that a round can fail."""

import shutil
from pathlib import Path

import pytest

from ml_assets_tests.faults.campaign import PATIENCE, play
from ml_assets_tests.faults.injections import Harm, begin
from ml_assets_tests.faults.invariants import INVARIANTS, violations
from ml_assets_tests.faults.matrix import ARENAS
from ml_assets_tests.faults.page import write_page
from ml_assets_tests.faults.places import lakefs
from ml_assets_tests.faults.results import Played, Strike, recall, remember

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.timeout(1800),  # two whole walks on a busy machine
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc"),
]


def only_strike(played: Played) -> Strike:
    """Of a round that held, with one fault that struck alone and was got over."""
    assert played.held, played
    (strike,) = played.strikes
    assert strike.together == 1
    return strike


def test_a_round_on_a_laptop_holds_and_one_that_does_not_is_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "faults.jsonl"
    held = play("laptop", 7, tmp_path, "a rank is killed")
    strike = only_strike(held)
    assert strike.seconds is not None and strike.steps is not None
    said = "stopped: it was killed (SIGKILL)", "A process was lost"  # of sanity, of a training
    assert any(sentence in strike.seen for sentence in said)
    remember(file, held)

    monkeypatch.setitem(INVARIANTS, "one champion at a time", lambda _: iter(["there are two"]))
    broken = play("laptop", 8, tmp_path, "a rank is killed")
    remember(file, broken)
    assert recall(file) == [held, broken]
    page = write_page(recall(file))
    assert "2 faults struck in 2 rounds, 0 of them in pairs." in page
    assert "| laptop | a rank is killed | 2 | 1 |" in page
    assert "`after a rank is killed: one champion at a time: there are two`" in page


def test_a_round_of_many_faults_holds_and_each_is_got_over(tmp_path: Path) -> None:
    played = play("laptop", 3, tmp_path)
    assert played.held, played
    assert len(played.strikes) >= 4
    assert [strike.at for strike in played.strikes] == sorted(s.at for s in played.strikes)
    assert all(strike.together in (1, 2) for strike in played.strikes)


def test_a_fault_that_hits_nothing_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []
    harmless = Harm(hit=lambda: False, end=lambda: ended.append("taken away"))
    monkeypatch.setitem(ARENAS["laptop"], "nothing", lambda _: harmless)
    played = play("laptop", 7, tmp_path, "nothing")
    assert played.held and played.strikes == [] and {*ended} == {"taken away"}


JUMPS = pytest.mark.skipif(not shutil.which("cc"), reason="no compiler for a wall clock that jumps")


@pytest.mark.parametrize(
    ("arena", "seed", "fault"),
    [
        ("pods", 7, "a pod is drained"),
        pytest.param("laptop", 7, "the clock goes an hour back", marks=JUMPS),
        ("served", 2, "a second daemon is begun"),
        ("postgres", 1, "Postgres restarts"),
        ("cluster", 1, "a pod is drained"),
        ("moves", 7, "a rollback and a recall race the release"),
    ],
)
def test_a_round_of_each_arena_holds(tmp_path: Path, arena: str, seed: int, fault: str) -> None:
    only_strike(play(arena, seed, tmp_path, fault))


def test_a_round_on_lakefs_holds_and_its_checker_sees_a_lost_file(tmp_path: Path) -> None:
    only_strike(play("lakefs", 7, tmp_path, "lakeFS refuses a merge (409)"))
    with lakefs(tmp_path / "planted") as place:
        assert begin(place.world, "run", "irises").wait(PATIENCE) == 0
        assert violations(place.history()) == []
        assert place.lake is not None
        (name,) = place.lake.catalog.repositories
        lost = place.history().below("tables/")[0]
        place.lake.collect(name, "main", lost)
        found = dict(violations(place.history()))
        assert lost in found["no state is half visible"]
