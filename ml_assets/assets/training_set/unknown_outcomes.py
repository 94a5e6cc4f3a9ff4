"""Counts and names the rows of a window with unknown outcomes, which are not trained on."""

import polars as pl

from ml_assets.adapters.step import RunLog
from ml_assets.assets.training_set.split import SplitPlan
from ml_assets.errors import counted, quoted
from ml_assets.spec.automation import duration_text
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import PipelineState


def tell_unknown(log: RunLog, state: PipelineState, window: SplitPlan | None) -> None:
    """Say in the run's log of which rows nobody knows what came; of a time series as a warning."""
    if said := unknown_outcomes(state, window):
        (log.warning if state.spec.label.ahead else log.info)(said)


def unknown_outcomes(state: PipelineState, window: SplitPlan | None) -> str:
    """Return how many rows of the window have no label, the first of them, and why; empty: all have
    one.

    Args:
        window: the partitions of each split; None: the table is read whole.
    """
    label, key = state.spec.label, list(state.spec.features.key)
    address = Address(state.name, "feature_set")
    keys = [key for keys in window.splits.values() for key in keys] if window else [None]
    total, unknown, first = 0, 0, ""
    for one in keys:
        rows = state.scan(address.at(one)).select(*key, label.column).collect()
        without = rows.filter(pl.col(label.column).is_null()).select(key)
        if not unknown and len(without):
            named = without.row(0, named=True).items()
            first = ", ".join(f"{name} {value}" for name, value in named)
        total, unknown = total + len(rows), unknown + len(without)
    if not unknown:
        return ""
    later = duration_text(label.ahead) if label.ahead else ""
    entity = [name for name in key if name != state.spec.features.decision_at]
    same = f" of the same {', '.join(entity)}" if entity else ""
    why = f": there is no {label.of}{same} {later} after them" if later else ""
    if later and unknown > total / 2:
        why += f". That is {unknown / total:.0%}: check features.key, sources and label.ahead"
    return (
        f"the outcome of {unknown:,} of {counted(total, 'row')} is not known{why}."
        f" They are not trained on; the first: {quoted(first)}"
    )
