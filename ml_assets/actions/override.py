"""An override from the command line: the line in the ledger, and the report's page in red."""

from ml_assets.assets.released_model.override import override
from ml_assets.assets.released_model.promote import Refused
from ml_assets.assets.released_model.report import write_report
from ml_assets.errors import EvidenceError
from ml_assets.graph.inputs import require_record
from ml_assets.graph.pipeline_graph import PipelineGraph
from ml_assets.settings import Settings
from ml_assets.spec.load import find_pipeline, load_spec, pipeline_folders
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.layout import Address
from ml_assets.store.open import open_objects, open_snapshots


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
    folder = find_pipeline(pipeline_folders(settings), pipeline)
    graph = PipelineGraph(load_spec(folder), folder)
    store = open_snapshots(settings.snapshots)
    said = override(store, graph.name, model, author, reason)
    if isinstance(said, Refused):
        raise EvidenceError("\n".join(said.reasons))
    report = require_record(store, store.resolve(), Address(graph.name, "evaluation_report"))
    if any(i.version == said.entry.model for i in report.inputs):  # else its page is of the past
        write_report(graph, store, open_objects(settings.objects, settings.cache))
    return said.entry
