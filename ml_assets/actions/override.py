"""An override from the command line: the line in the ledger, and the report's page in red."""

from ml_assets.assets.released_model.evaluation_page_file import write_report
from ml_assets.assets.released_model.override import override
from ml_assets.assets.released_model.promote import Refused
from ml_assets.errors import EvidenceError
from ml_assets.graph.inputs import require_record
from ml_assets.settings import Settings
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.pipeline_context import open_pipeline


def override_refusal(
    pipeline: str, model: str | None, author: str, reason: str, settings: Settings
) -> LedgerEntry:
    """Set a person's word against the newest decision on a model; nothing is moved yet.

    Args:
        model: the beginning of its digest; None: the model that was decided on last.

    Raises:
        EvidenceError: no decision refused it.
        UnknownModel: the ledger tells of no such model.
        SpecError: there is no such pipeline, or its spec is wrong.
    """
    opened = open_pipeline(pipeline, settings)
    store = opened.store
    said = override(store, opened.name, model, author, reason)
    if isinstance(said, Refused):
        raise EvidenceError("\n".join(said.reasons))
    report = require_record(opened.now(), opened.address("evaluation_report"))
    if any(i.version == said.entry.model for i in report.inputs):  # else its page is of the past
        write_report(opened)
    return said.entry
