"""Records of a stage as far as a look needs them; one that is as it was is not read again.

A year has 8,760 hours of answers, and a sensor looks twice a minute.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.spec.stages import PREDICTIONS_STAGE
from ml_assets.store.layout import Address, read_as
from ml_assets.store.pipeline_context import PipelineState
from ml_assets.store.snapshots import Entry


@dataclass(frozen=True, slots=True)
class KnownRecord:
    """The parts of a record that a process keeps; an evaluation's lists every hour of answers."""

    digest: str
    """Of the record itself: while it is the same, so is all that it says."""
    partition: str | None
    data_version: str
    code_version: str
    time: datetime
    inputs: tuple[InputVersion, ...]
    """Those that are no hours of answers."""


_KNOWN: dict[str, KnownRecord] = {}
"""Digest -> record; the store checks each record against its digest."""


def known_records(state: PipelineState, address: Address) -> Sequence[KnownRecord]:
    """The records of an asset's published partitions, oldest first; or its one, read whole.

    Raises:
        StorageError: one cannot be read.
    """
    entries = state.store.list(state.commit, f"records/{address.key}/")
    found = [_KNOWN.get(entry.digest) or _read(state, entry) for entry in entries]
    parts = [one for one in found if one.partition]
    return sorted(parts, key=lambda one: one.partition or "") or found


def _read(state: PipelineState, entry: Entry) -> KnownRecord:
    record = read_as(state.store, state.commit, entry.path, StageRecord)
    hours = state.address(PREDICTIONS_STAGE).key
    known = KnownRecord(
        entry.digest,
        record.partition,
        record.data_version,
        record.code_version,
        record.time,
        tuple(one for one in record.inputs if one.key != hours),
    )
    return _KNOWN.setdefault(entry.digest, known)
