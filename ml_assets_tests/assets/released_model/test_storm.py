"""Promotions, rollbacks and overrides under fire: two at once, and killed at every write.

However it ends, the ledger tells of one champion at every moment, and no line that somebody was
told of is lost. Four rounds at once, and two of kills at every write (each is a dozen or more); a
hundred of both with ML_ASSETS_TEST_ROUNDS=100 (see `make long`).
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest

from ml_assets.actions.override import OverrideMade, override
from ml_assets.assets.released_model.promote import Released, release
from ml_assets.assets.released_model.rollback import RolledBack, Way, append_rollback
from ml_assets.records.ledger.audit import problems
from ml_assets.records.ledger.chain import read, record_decision
from ml_assets.records.ledger.stages import champion, moves
from ml_assets.spec.gates import ReleaseSpec
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets.store.snapshots import SnapshotStore
from ml_assets_tests.kill import killed_at_every_step
from ml_assets_tests.records.conftest import PIPELINE, decision, evidence, refused, released

ROUNDS = int(os.environ.get("ML_ASSETS_TEST_ROUNDS", "4"))
KILLED_ROUNDS = int(os.environ.get("ML_ASSETS_TEST_ROUNDS", "2"))
SPEC = ReleaseSpec()
WON, LOST = 0, 3
Command = Callable[[SnapshotStore], object]


def promote(model: str, champion: str | None) -> Command:
    return lambda store: release(store, PIPELINE, evidence(model, champion), SPEC, "me", "run")


def go_back(away: str, back: str) -> Command:
    return lambda store: append_rollback(store, PIPELINE, Way(away, back), SPEC, "ada", "late")


def answer_for(model: str) -> Command:
    return lambda store: override(store, PIPELINE, model, "ada", "the snow week")


def at_once(folder: Path, commands: Sequence[Command]) -> list[int]:
    """Run each in a process of its own, all let go at the same time; how each ended."""
    gate, opener = os.pipe()
    children: list[int] = []
    for command in commands:
        child = os.fork()
        if child == 0:
            try:
                os.close(opener)
                store = EmbeddedStore(folder)
                store.resolve()
                os.read(gate, 1)  # until the parent closes it
                won = isinstance(command(store), Released | RolledBack | OverrideMade)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(WON if won else LOST)
        children.append(child)
    os.close(gate)
    os.close(opener)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def one_story(store: SnapshotStore) -> tuple[LedgerEntry, ...]:
    """The ledger as anybody reads it, held to be possible."""
    entries = read(store, PIPELINE)
    assert problems(entries) == ()
    return entries


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


def models():
    """Digests without end."""
    return (f"{number:064x}" for number in count(1))


def test_of_two_promotions_at_once_one_wins_every_time(store, decide, folder):
    names, there = models(), None
    for _ in range(ROUNDS):
        pair = next(names), next(names)
        for model in pair:
            decide(model, champion=there)
        ended = at_once(folder, [promote(model, there) for model in pair])
        assert sorted(ended) == [WON, LOST]
        there = pair[ended.index(WON)]
        assert champion(one_story(store)) == there
    assert len(moves(read(store, PIPELINE))) == ROUNDS
    assert len(read(store, PIPELINE)) == 3 * ROUNDS


def test_a_rollback_and_a_promotion_at_once_leave_one_of_them(store, decide, folder):
    """Both lead away from the same champion: whoever is second is about one that is gone."""
    names = models()
    first, there = next(names), next(names)
    released(store, first)
    released(store, there, champion=first)
    for _ in range(ROUNDS):
        new = next(names)
        decide(new, champion=there)
        ended = at_once(folder, [promote(new, there), go_back(there, first)])
        assert sorted(ended) == [WON, LOST]
        won = (new, first)[ended.index(WON)]
        assert champion(one_story(store)) == won
        first, there = (there, new) if won == new else (first, next(names))
        if won == first:
            released(store, there, champion=first)


def test_an_override_counts_or_comes_too_late_when_another_decision_is_made_at_once(store, folder):
    """It is against the decision that it names, whichever of the two came first."""
    names = models()
    for _ in range(ROUNDS):
        model = next(names)
        line = refused(store, model)
        again = decision(evidence(model, report="77" * 32))

        def decide_again(store: SnapshotStore, said=again) -> object:
            return record_decision(store, said, "me")

        ended = at_once(folder, [answer_for(model), decide_again])
        entries = one_story(store)
        written = [e for e in entries if e.kind == "override" and e.model == model]
        assert [e.overrides for e in written] == ([line.seq] if ended[0] == WON else [])


class Fragile(EmbeddedStore):
    """A store in which the move of ``main`` is two more steps at which a process may die."""

    def move_main(self, expected: str, new: str) -> bool:
        sys.audit("os.rename", "before", "the move", -1, -1)
        moved = super().move_main(expected, new)
        sys.audit("os.rename", "behind", "the move", -1, -1)
        return moved


def kill_at_every_write(folder: Path, command: Command, before: int) -> int:
    """Do a command again after each kill; one line comes of it, and it is there for good.

    Args:
        before: how many lines there are.

    Returns:
        How often it was killed.
    """
    store, kills, there = EmbeddedStore(folder), 0, 0
    for _ in killed_at_every_step(lambda: command(Fragile(folder))):
        kills += 1
        entries = one_story(store)
        assert there <= len(entries) - before <= 1, "no line is lost, none is written twice"
        there = len(entries) - before
    assert len(one_story(store)) == before + 1
    return kills


def test_a_promotion_killed_at_every_write_is_one_move(store, decide, folder):
    names, there = models(), None
    for number in range(KILLED_ROUNDS):
        model = next(names)
        decide(model, champion=there)
        assert kill_at_every_write(folder, promote(model, there), 2 * number + 1) >= 8
        assert champion(read(store, PIPELINE)) == model
        there = model


def test_a_rollback_killed_at_every_write_is_one_move(store, folder):
    first, second = "aa" * 32, "bb" * 32
    released(store, first)
    released(store, second, champion=first)
    for number in range(KILLED_ROUNDS):
        away, back = (second, first) if number % 2 == 0 else (first, second)
        assert kill_at_every_write(folder, go_back(away, back), number + 4) >= 8
        assert champion(read(store, PIPELINE)) == back


def test_an_override_killed_at_every_write_is_one_line(store, folder):
    names = models()
    for number in range(KILLED_ROUNDS):
        model = next(names)
        refused(store, model)
        assert kill_at_every_write(folder, answer_for(model), 2 * number + 1) >= 8
