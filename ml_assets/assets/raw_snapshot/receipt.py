"""Describes what is to be read of a source, and the receipt of what was read."""

from ml_assets.spec.base import digest_of
from ml_assets.spec.partitions import PartitionWindow, windows
from ml_assets.spec.records import InputVersion
from ml_assets.store.pipeline_context import Pipeline


def window_of(pipeline: Pipeline, partition: str | None) -> PartitionWindow | None:
    """The span of time of a partition key; None for a source that is read whole."""
    from ml_assets.assets.raw_snapshot.sources import Sources

    if partition is None:
        return None
    known = {w.key: w for w in windows(pipeline.spec.partitions, Sources.now())}
    return known[partition]


def receipt_version(source: str, partition: str | None, receipt: dict[str, object]) -> InputVersion:
    """Return what was read, as the input of a raw snapshot: the outside world has no commit.

    The version of a table at which its rows were read is told and decides nothing: a commit that
    left the rows of a partition as they were makes it no other partition.
    """
    rows = {name: value for name, value in receipt.items() if name != "version"}
    return InputVersion(
        key=f"source:{source}", partition=partition, version=digest_of(rows), commit=None
    )
