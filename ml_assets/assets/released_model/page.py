"""The page of a release, and the record of its stage: after a release and after a rollback."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ml_assets.adapters.declare_asset import Materialization, materialization
from ml_assets.adapters.metadata import (
    address,
    glance,
    markdown,
    model_links,
    pictures,
    record_metadata,
)
from ml_assets.assets.evaluation_report.pictures import at_a_glance
from ml_assets.assets.evaluation_report.stored_report import read_changes, read_report
from ml_assets.assets.released_model.rollback import Returned
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.inputs import require_record
from ml_assets.graph.publish import Draft, Work, input_version
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import latest_decision, stage_of, standing_override
from ml_assets.records.tracking.links import Links
from ml_assets.reports.decisions import (
    decisions_picture,
    gates_picture,
    gates_table,
    ledger_table,
    override_picture,
    released_table,
)
from ml_assets.reports.picture import Picture, Table
from ml_assets.reports.tables import changes_table
from ml_assets.reports.wording import plain_markdown
from ml_assets.spec.records import LedgerEntry, StageRecord
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, PipelineState

STAGE = "released_model"


@dataclass(frozen=True)
class ShownRelease:
    """Holds what a materialization says of the model in a stage."""

    metadata: dict[str, Any]
    data_version: str


def show_release(
    state: PipelineState,
    move: LedgerEntry,
    run: str,
    stage: str = STAGE,
) -> ShownRelease:
    """Publish the record of released_model (or promoted_model), and what its page shows.

    Args:
        state: has the records of the model that was moved, and of its report.
        move: the line of the ledger.
        run: the Dagster run id; empty for a command.

    Raises:
        StorageError: another run published the record at the same time.
    """
    model = require_record(state, state.address("trained_model"))
    report = require_record(state, state.address("evaluation_report"))
    inputs = (input_version(model, state.commit), input_version(report, state.commit))
    code_version = code_version_of(state.pipeline, stage)
    work = Work(Address(state.name, stage), code_version, inputs, run)
    with Draft(state.pipeline, work, state.store.resolve("main")) as draft:
        published = draft.publish(
            attributes=_attributes(move, model), data_version=model.data_version
        )
    entries = read(state.store, state.name)
    override = standing_override(entries, move.model)
    metadata = {
        **glance(at_a_glance(read_report(state))),
        **pictures(_shown(state, move, entries)),
        **({"OVERRIDE": _in_red(override)} if override else {}),
        "stage": stage_of(entries, move.model) or "",
        **model_links(state.pipeline, model),
        "mlflow_model": address(Links.of(state.pipeline.settings).registered_model(state.name)),
        "author": move.author,
        "reason": move.reason,
        "ledger_line": move.seq,
        "dagster/uri": model.attributes["model"]["uri"],
        **record_metadata(published),
    }
    return ShownRelease(metadata, model.data_version)


def _in_red(override: LedgerEntry) -> Any:
    failed = plain_markdown(", ".join(override.gates))
    return markdown(
        f"🔴 **Released by an override**, not by its gates ({failed} failed): see the pictures."
    )


def _shown(
    state: PipelineState,
    move: LedgerEntry,
    entries: Sequence[LedgerEntry],
) -> list[Picture | Table]:
    """What was released, by which gates, what it changes, and what came before."""
    decision = latest_decision(entries, move.model)
    gates = decision.gates if decision else ()
    record = require_record(state, state.address("evaluation_report"))
    return [
        *override_picture(standing_override(entries, move.model)),
        released_table(read_report(state), state.spec, move),
        *gates_picture(gates, state.spec.gates),
        gates_table(gates, state.spec.gates),
        changes_table(read_changes(record)),
        *decisions_picture(entries, state.spec.gates),
        ledger_table(entries),
    ]


def _attributes(move: LedgerEntry, model: StageRecord) -> dict[str, object]:
    return {
        "stage": move.stage,
        "seq": move.seq,
        "model": model.attributes["model"],
        "session": model.attributes["session"],
    }


def rolled_back(pipeline: Pipeline, returned: Returned, run: str = "") -> Materialization:
    """Publish the record, and what Dagster is to be told.

    Raises:
        StorageError: another run published the record at the same time.
    """
    stage = pipeline.spec.release.shown_by
    shown = show_release(pipeline.at(returned.origin.commit), returned.entry, run, stage)
    about = f"Rolled back by {returned.entry.author}: {returned.entry.reason}"
    return materialization(pipeline, stage, shown.data_version, shown.metadata, about)
