"""The content of a data card, stage by stage: whose labels, grouped by what."""

from dataclasses import replace

from ml_assets.reports.card import Card
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.training_program import SPLIT
from ml_assets.store.layout import Address
from ml_assets.store.table_statistics import TableStatistics
from ml_assets.store.table_survey import LabelColumns

GROUPINGS = 4
"""Most columns that labels are grouped by."""


def label_columns(spec: PipelineSpec) -> LabelColumns:
    """The label, by the slices of the evaluation, else by the first categorical features."""
    by = (spec.evaluation.slices or spec.features.categorical)[:GROUPINGS]
    timed = spec.partitions.cadence != "none"
    return LabelColumns(
        label=spec.label.column,
        classes=spec.label.classes,
        by=tuple(name for name in by if name != spec.features.decision_at),
        period=spec.features.decision_at if timed else None,
    )


def split_labels(spec: PipelineSpec) -> LabelColumns:
    """The same of a training set, by its splits too."""
    found = label_columns(spec)
    return replace(found, by=(SPLIT, *found.by))


def card_of(
    address: Address, statistics: TableStatistics | None, spec: PipelineSpec | None = None
) -> Card | None:
    """The card of one table, or of one partition of it; None where nothing is known of it.

    Args:
        spec: of a table that has labels.
    """
    if statistics is None:
        return None
    return Card(
        pipeline=address.pipeline,
        table=address.source or address.stage,
        span=address.partition or "all rows",
        statistics=statistics,
        label=spec.label if spec else None,
        time_columns=("partition", spec.features.decision_at) if spec else (),
    )
