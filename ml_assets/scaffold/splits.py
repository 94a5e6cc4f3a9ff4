"""The partitions of a new pipeline's splits; where they are too few, its files as one table."""

from dataclasses import replace

from ml_assets.errors import counted
from ml_assets.scaffold.find_input import ONE_TABLE, as_one_table
from ml_assets.scaffold.labelled_table import LabelledTable
from ml_assets.scaffold.lag_features import first_partitions, partitions_ahead

_SPLITS = 3
"""Train, validation and holdout: each takes a partition at least."""


def partitions_of_splits(table: LabelledTable) -> dict[str, int]:
    """How many partitions each split takes; empty where the data is read whole."""
    if table.given.calendar is None:
        return {}
    embargo, rest = _embargo(table), _rest(table)
    holdout, validation = max(1, round(0.2 * rest)), max(1, round(0.15 * rest))
    train = rest - holdout - validation
    return {"train": train, "validation": validation, "holdout": holdout, "embargo": embargo}


def with_enough_partitions(table: LabelledTable) -> LabelledTable:
    """The table as it is; read whole where its past and its splits need more partitions."""
    if table.given.calendar is None or _rest(table) >= _SPLITS:
        return table
    need = first_partitions(table) + _SPLITS + 2 * _embargo(table)
    there = len(table.given.calendar.keys)
    said = (
        f"the past of {table.label}, the splits and what is left out between them need"
        f" {counted(need, 'partition')}, and there are {there}: {ONE_TABLE}"
    )
    return replace(table, given=as_one_table(table.given), notes=(*table.notes, said))


def _rest(table: LabelledTable) -> int:
    """The partitions that lie in a split: those with their past, but for the embargo."""
    return _with_past(table) - 2 * _embargo(table)


def _embargo(table: LabelledTable) -> int:
    return max(1 if _with_past(table) >= 8 else 0, partitions_ahead(table))


def _with_past(table: LabelledTable) -> int:
    calendar = table.given.calendar
    return len(calendar.keys) - first_partitions(table) if calendar else 0
