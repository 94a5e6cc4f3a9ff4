"""Reads the last drift report of a pipeline, and whether it is about the present release."""

from dataclasses import dataclass

from ml_assets.assets.drift_report.findings import DriftReport
from ml_assets.assets.drift_report.windows import held_against
from ml_assets.errors import SpecError, StorageError
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.spec.drift import how_to_watch
from ml_assets.spec.records import REPORT_FILE
from ml_assets.spec.stages import DRIFT_STAGE
from ml_assets.store.pipeline_context import Pipeline, PipelineState


@dataclass(frozen=True)
class FoundReport:
    """The stored report."""

    report: DriftReport
    outdated: str
    """Why it says nothing of the release of now; empty where it does."""


def find_report(pipeline: Pipeline) -> FoundReport:
    """The last report of a pipeline.

    Raises:
        SpecError: the pipeline watches for no drift.
        StorageError: no report was made yet; says why.
    """
    if pipeline.spec.drift is None:
        raise SpecError(
            f"{pipeline.name} watches for no drift:"
            f" {how_to_watch(pipeline.spec.partitions.cadence)}"
        )
    state = pipeline.now()
    report, held = last_report(state), held_against(state)
    if report is None and isinstance(held, str):
        raise StorageError(f"{pipeline.name} has no drift report yet: {held}.")
    if report is None:
        raise StorageError(
            f"{pipeline.name} has no drift report yet: one is made when a period is published that"
            f" came after all that the release has seen. Land one, then: ml-assets run"
            f" {pipeline.name}"
        )
    now = champion(read(pipeline.store, pipeline.name, state.commit), pipeline.spec.release.to)
    if now == report.model:
        return FoundReport(report, "")
    if isinstance(held, str):
        return FoundReport(report, held)
    return FoundReport(
        report,
        f"model {(now or 'none')[:12]} was released since then;"
        " the next period is compared with that model",
    )


def last_report(state: PipelineState) -> DriftReport | None:
    """The stored report; None where none was made yet."""
    address = state.address(DRIFT_STAGE)
    if state.record(address) is None:
        return None
    return DriftReport.model_validate_json(state.read_bytes(address.file(REPORT_FILE)))
