"""Whether there is drift to look for: a period that came after all that the release has seen."""

from dataclasses import dataclass

from ml_assets.adapters.declared import asset_key
from ml_assets.adapters.runs import Selection
from ml_assets.assets.drift_report.windows import drift_windows
from ml_assets.spec.stages import DRIFT_STAGE
from ml_assets.store.layout import Address, read_record
from ml_assets.store.pipeline_context import Pipeline


@dataclass(frozen=True)
class DriftStep:
    """A report is to be made."""

    selection: Selection
    partition: str
    """The newest period that it is about."""
    reason: str
    wanted: str
    """The run key: the same until the release, a period or the spec changes."""


def drift_step(pipeline: Pipeline) -> DriftStep | str:
    """The report, where it is due; else why not, empty where the pipeline watches for no drift.

    Raises:
        StorageError: the baseline of the release is not the one that was certified.
    """
    if pipeline.spec.drift is None:
        return ""
    base = pipeline.store.resolve("main")
    windows = drift_windows(pipeline.at(base))
    if isinstance(windows, str):
        return windows
    key = windows.work(pipeline, "").run_key
    record = read_record(pipeline.store, base, Address(pipeline.name, DRIFT_STAGE))
    if record is not None and record.run_key == key:
        return f"{windows.newest} is judged against the release, and has not changed since"
    selection = Selection((asset_key(pipeline, DRIFT_STAGE),))
    reason = f"{windows.newest} is published, and was not held to the release"
    return DriftStep(selection, windows.newest, reason, key)
