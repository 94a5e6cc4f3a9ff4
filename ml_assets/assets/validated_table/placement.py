"""Placement: whether each row of a partition has a time that lies in it."""

from typing import TYPE_CHECKING

from ml_assets.assets.validated_table.contract.results import ExpectationResult
from ml_assets.errors import counted, quoted
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.pipeline import PipelineSpec

if TYPE_CHECKING:
    import polars as pl

CHECK_NAME = "rows_in_partition"


def placing_column(spec: PipelineSpec, source: str) -> str | None:
    """The column that says which partition a row of a source is in, where the spec names one."""
    subject = spec.features.subject
    if subject is None or subject.source != source or not spec.sources[source].partitioned:
        return None
    return subject.time


def judge_placement(
    rows: "pl.LazyFrame", time: str, window: PartitionWindow, zone: str
) -> ExpectationResult:
    """Count the rows whose time is not in the partition that they were delivered with.

    A feature function makes rows of its window, so it passes over these without a word.

    Args:
        rows: of one partition, with the datetime column ``time``, in UTC.
        zone: of the partitions, for the message.
    """
    import polars as pl

    inside = pl.col(time).is_between(window.start, window.end, closed="left").fill_null(False)
    outside = pl.col(time).filter(~inside)
    told = rows.select(
        all=pl.len(), outside=outside.len(), earliest=outside.min(), latest=outside.max()
    ).collect()
    every, count, earliest, latest = told.row(0)
    span = f"{window.start:%Y-%m-%d %H:%M} to {window.end:%Y-%m-%d %H:%M} UTC"
    said = f"each {time} lies in the partition {window.key}, {span}"
    if count:
        between = "without a value" if earliest is None else _between(earliest, latest)
        said = (
            f"{count:,} of {counted(every, 'row', 'have')} a {time} outside the partition"
            f" {window.key}, {span}: {between}. A feature function that takes the rows of its"
            f" window leaves them out. If the files are cut in another zone than {zone}, correct"
            " partitions.timezone. If not, deliver these rows with the partition of their time."
        )
    return ExpectationResult(
        check_name=CHECK_NAME,
        severity="warning",
        passed=not count,
        rows_failed=count,
        observed=count,
        reason=said,
    )


def _between(earliest: object, latest: object) -> str:
    first, last = (quoted(f"{one:%Y-%m-%d %H:%M:%S}") for one in (earliest, latest))
    return first if first == last else f"from {first} to {last}"
