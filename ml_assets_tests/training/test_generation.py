"""What torchrun starts again: processes that know what the ones before them ended with."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ml_assets.spec.training_program.events import Failed
from ml_assets.training.events import EventWriter
from ml_assets.training.hang import patience
from ml_assets.training.peers import failures, standing_verdict
from ml_assets.training.stop import PeerLost, PeerSilent, peer_trouble


def failed(code: int, rank: int = 0, generation: int = 0) -> Failed:
    return Failed(
        session="s",
        attempt=1,
        seq=0,
        time=datetime.now(UTC),
        exit_code=code,
        reason="why",
        rank=rank,
        generation=generation,
        step=None,
        detail="",
    )


@pytest.mark.parametrize("code", [64, 65, 66, 67, 69, 74, 75])
def test_a_verdict_of_any_rank_stands(code: int) -> None:
    assert standing_verdict([failed(71), failed(code, rank=1)], 2) == code


@pytest.mark.parametrize("code", [70, 71, 76])
def test_where_a_rank_died_without_a_word_a_restart_may_mend_it(code: int) -> None:
    assert standing_verdict([failed(code)], 2) is None
    assert standing_verdict([], 2) is None


def test_a_bug_after_which_every_rank_spoke_is_a_bug() -> None:
    assert standing_verdict([failed(71), failed(70, rank=1)], 2) == 70


def test_of_several_machines_each_hears_its_own_ranks_and_a_bug_stands_when_it_came_again() -> None:
    here = range(2, 4)
    once = [failed(70, rank=2), failed(71, rank=3)]
    again = [failed(71, rank=2, generation=1), failed(70, rank=3, generation=1)]
    assert standing_verdict(once, 4, here) is None  # a rank elsewhere may have been killed
    assert standing_verdict([*once, *again], 4, here) == 70
    assert standing_verdict([*once, again[1]], 4, here) is None  # here a rank was killed
    lost = [failed(71, rank=rank, generation=1) for rank in here]
    assert standing_verdict([*once, *lost], 4, here) is None


def test_a_lost_peer_is_no_verdict_even_where_every_rank_met_it() -> None:
    assert standing_verdict([failed(71), failed(76, rank=1)], 2) is None


def test_starts_are_not_mixed_up() -> None:
    told = [failed(70, rank=0, generation=0), failed(71, rank=1, generation=1)]
    assert standing_verdict(told, 2) is None


def test_a_start_that_only_repeated_a_verdict_leaves_it_standing() -> None:
    told = [failed(71, generation=0), failed(66, rank=1, generation=1)]
    assert standing_verdict(told, 2) == 66  # whether the third start asks, or the fourth


def test_a_second_writer_goes_on_numbering_and_closes_a_line_that_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "events.jsonl"
    first = EventWriter(file, "s", 1, rank=0)
    first.warning("one")
    first.warning("two")
    with file.open("ab") as handle:
        handle.write(b'{"v": 1, "session"')
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    EventWriter(file, "s", 1, rank=0).failed(71, "three", None, detail="")
    (found,) = failures(file)
    assert (found.reason, found.seq, found.generation) == ("three", 3, 1)


def test_what_every_rank_said_is_found(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    for rank in range(3):
        EventWriter(file, "s", 1, rank).failed(70 + rank, "why", None, detail="")
    assert [(f.rank, f.exit_code) for f in failures(file)] == [(0, 70), (1, 71), (2, 72)]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 2000ms for recv", PeerSilent),
        ("Application timeout caused pair closure", PeerSilent),
        ("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1", PeerLost),
        ("mat1 and mat2 shapes cannot be multiplied", None),
    ],
)
def test_what_the_loss_of_a_peer_raises_is_told_from_a_bug(
    message: str, kind: type[Exception] | None
) -> None:
    assert peer_trouble(RuntimeError(message)) is kind
    wrapped = ValueError("a save failed")
    wrapped.__cause__ = RuntimeError(message)
    assert peer_trouble(wrapped) is kind


def test_patience_is_twenty_median_steps_and_never_less_than_declared() -> None:
    assert patience([0.01, 0.01, 9.0], least=30) == 30
    assert patience([2.0, 4.0, 100.0], least=30) == 80
