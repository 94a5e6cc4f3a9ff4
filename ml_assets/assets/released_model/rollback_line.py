"""Rolling back: a model that was in a stage before takes its place again, in one line.

Which model may come back is a pure function of the ledger; what its files are worth is for the
caller to find out first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ml_assets.assets.released_model.promote import Refused
from ml_assets.assets.released_model.tags import append_move
from ml_assets.errors import one_line
from ml_assets.records.ledger.chain import Appended, Declined, Head
from ml_assets.records.ledger.stages import (
    champion,
    decided_move,
    find_model,
    moves,
    put_out_line,
    stage_line,
)
from ml_assets.spec.gates import ReleaseSpec
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.snapshots import SnapshotStore


@dataclass(frozen=True)
class Way:
    """From the model in the stage to the one that comes back; equal where it is back already."""

    away: str
    back: str


@dataclass(frozen=True)
class RolledBack:
    """The model is in the stage again, by this line."""

    entry: LedgerEntry


@dataclass(frozen=True)
class AlreadyBack:
    """The model was in the stage already, by this line."""

    entry: LedgerEntry


def way_back(
    entries: Sequence[LedgerEntry], release: ReleaseSpec, to: str | None = None
) -> Way | Refused:
    """Which model a rollback brings back.

    Args:
        to: the beginning of its digest; None: the newest one that was in the stage before, and
            that nobody rolled back from since.

    Raises:
        UnknownModel: the ledger tells of no such model.
    """
    away = champion(entries, release.to)
    if away is None:
        return Refused((f"No model is in {release.to}: there is nothing to roll back from.",))
    if to is not None:
        back = find_model(entries, to)
        why = (
            f"Model {back[:12]} was never released to {release.to}: there is nothing to go back to."
            " What passes its gates is released by a run, which asks for more."
        )
        return Way(away, back) if decided_move(entries, back, release.to) else Refused((why,))
    before = dict.fromkeys(e.model for e in reversed(moves(entries, release.to)))
    for model in before:
        if model != away and put_out_line(entries, model) is None:
            return Way(away, model)
    return Refused(
        (
            f"No model was in {release.to} before {away[:12]}, or somebody rolled back from each of"
            " them. Name one with --to; ml-assets release history shows them.",
        )
    )


def roll_back(
    store: SnapshotStore,
    pipeline: str,
    way: Way,
    release: ReleaseSpec,
    author: str,
    reason: str,
    run: str = "",
) -> RolledBack | AlreadyBack | Refused:
    """Write the move down, if the model that it leads away from is still the one in the stage.

    Args:
        author: who answers for it.
        run: the Dagster run id; empty for a command.

    Raises:
        StorageError: the ledger is broken.
    """

    def make(head: Head) -> LedgerEntry | Declined[AlreadyBack | Refused]:
        there = stage_line(head.entries, release.to)
        if there is not None and there.model == way.back:
            return Declined(AlreadyBack(there))
        if there is None or there.model != way.away:
            return Declined(_overtaken(there, way, release))
        found = way_back(head.entries, release, way.back)
        if isinstance(found, Refused):
            return Declined(found)
        return LedgerEntry(
            seq=head.seq,
            previous=head.previous,
            kind="stage",
            model=way.back,
            stage=release.to,
            replaced=way.away,
            because="rollback",
            author=one_line(author),
            reason=one_line(reason),
            run=run,
            time=datetime.now(UTC),
        )

    outcome = append_move(store, pipeline, make)
    return RolledBack(outcome.entry) if isinstance(outcome, Appended) else outcome.outcome


def _overtaken(there: LedgerEntry | None, way: Way, release: ReleaseSpec) -> Refused:
    now = f"{there.model[:12]}, by line {there.seq} of {there.author}" if there else "none"
    return Refused(
        (
            f"Somebody else was first: this rollback leads away from {way.away[:12]} in"
            f" {release.to}, and there is {now} now. Nothing was moved; look, and ask again.",
        )
    )
