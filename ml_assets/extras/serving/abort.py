"""The line of the ledger by which a model in canary is out: what its traffic showed."""

from datetime import UTC, datetime

from ml_assets.errors import one_line
from ml_assets.records.ledger.chain import Appended, Declined, Head, append
from ml_assets.records.ledger.stages import champion
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.pipeline_context import Pipeline


def abort_canary(pipeline: Pipeline, model: str, reason: str) -> LedgerEntry | None:
    """Take a model out of canary, by the thresholds of the spec; None where it is not there.

    Raises:
        StorageError: the ledger is broken.
        MlAssetsError: the line cannot be written, as where no key signs it.
    """

    def make(head: Head) -> LedgerEntry | Declined[None]:
        if champion(head.entries, "canary") != model:
            return Declined(None)
        return LedgerEntry(
            seq=head.seq,
            previous=head.previous,
            kind="abort",
            model=model,
            author=pipeline.spec.owner,
            reason=one_line(reason),
            run="",
            time=datetime.now(UTC),
        )

    outcome = append(pipeline.store, pipeline.name, make)
    return outcome.entry if isinstance(outcome, Appended) else None
