"""A round in each place, with a fault that is named; a plant shows that a round can fail."""

import shutil
from pathlib import Path

import pytest

from ml_assets_tests.faults.campaign import PATIENCE, play
from ml_assets_tests.faults.history import INVARIANTS, violations
from ml_assets_tests.faults.injections import begin
from ml_assets_tests.faults.matrix import ARENAS, WANTED
from ml_assets_tests.faults.page import write_page
from ml_assets_tests.faults.places import lakefs

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.timeout(1800),  # two whole walks on a busy machine
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc"),
]


def test_a_round_on_a_laptop_holds_and_one_that_does_not_is_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (held,) = play("laptop", 7, tmp_path, "a rank is killed")
    assert held.broken == []
    page = write_page([held], "today")
    assert "| laptop | a rank is killed | 1 | 1 |" in page
    assert "## What did not hold\n\nNothing.\n" in page

    monkeypatch.setitem(INVARIANTS, "one champion at a time", lambda _: iter(["there are two"]))
    (broken,) = play("laptop", 8, tmp_path, "a rank is killed")
    page = write_page([held, broken], "today")
    assert "| laptop | a rank is killed | 2 | 1 |" in page
    assert "`one champion at a time: there are two`" in page


def test_a_round_in_pods_holds(tmp_path: Path) -> None:
    (strike,) = play("pods", 7, tmp_path, "a pod is drained")
    assert strike.broken == []


@pytest.mark.skipif(not shutil.which("cc"), reason="no compiler for a wall clock that jumps")
def test_a_round_whose_clock_jumps_holds(tmp_path: Path) -> None:
    (strike,) = play("laptop", 7, tmp_path, "the clock goes an hour back")
    assert strike.broken == []


def test_a_round_on_lakefs_holds_and_its_checker_sees_a_lost_file(tmp_path: Path) -> None:
    (strike,) = play("lakefs", 7, tmp_path, "lakeFS refuses a merge (409)")
    assert strike.broken == []
    with lakefs(tmp_path / "planted") as place:
        assert begin(place.world, "run", "irises").wait(PATIENCE) == 0
        assert violations(place.history()) == []
        assert place.lake is not None
        (name,) = place.lake.catalog.repositories
        lost = place.history().below("tables/")[0]
        place.lake.collect(name, "main", lost)
        found = dict(violations(place.history()))
        assert lost in found["no state is half visible"]


def test_a_round_of_the_daemon_holds_and_a_second_one_is_refused(tmp_path: Path) -> None:
    (strike,) = play("served", 2, tmp_path, "a second daemon is begun")
    assert strike.broken == []


def test_a_round_holds_whose_postgres_restarts(tmp_path: Path) -> None:
    (strike,) = play("postgres", 1, tmp_path, "Postgres restarts")
    assert strike.broken == []


def test_a_round_holds_in_which_a_rollback_and_a_recall_race_the_release(tmp_path: Path) -> None:
    (strike,) = play("moves", 7, tmp_path, "a rollback and a recall race the release")
    assert strike.broken == []


def test_what_the_matrix_is_to_have_names_faults_that_there_are() -> None:
    known = {fault for faults in ARENAS.values() for fault in faults}
    assert {fault for faults in WANTED.values() for fault in faults} <= known
    page = write_page([], "today")
    assert "- runs by schedules\n" in page
    assert "not drawn yet: laptop: the command is killed" in page
