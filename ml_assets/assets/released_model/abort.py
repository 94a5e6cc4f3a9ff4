"""The ledger line that takes a model out of staging or canary, because of its traffic or by a
person's word. No gate brings the model back."""

from datetime import UTC, datetime

from ml_assets.errors import one_line
from ml_assets.records.ledger.chain import Appended, Declined, Head, append
from ml_assets.records.ledger.stages import on_its_way
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.pipeline_context import Pipeline


def abort(pipeline: Pipeline, model: str, author: str, reason: str) -> LedgerEntry | None:
    """Take a model out of staging or canary; None where it is in neither.

    Raises:
        StorageError: the ledger is broken.
        MlAssetsError: the line cannot be written, as where no key signs it.
    """

    def make(head: Head) -> LedgerEntry | Declined[None]:
        if model not in on_its_way(head.entries):
            return Declined(None)
        return LedgerEntry(
            seq=head.seq,
            previous=head.previous,
            kind="abort",
            model=model,
            author=author,
            reason=one_line(reason),
            run="",
            time=datetime.now(UTC),
        )

    outcome = append(pipeline.store, pipeline.name, make)
    return outcome.entry if isinstance(outcome, Appended) else None
