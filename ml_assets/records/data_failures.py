"""Records the partitions of data stages that could not be made, until they are made.

A file for each asset, ``failures/<asset key>.json`` in the snapshot store, holds the newest ones. A
partition whose record is newer than its failure has been made since.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from ml_assets.errors import StorageError, counted, own_lines
from ml_assets.spec.base import Frozen, canonical_json, digest_of
from ml_assets.spec.records import Time
from ml_assets.store.layout import Address, read_as
from ml_assets.store.pipeline_context import PipelineState
from ml_assets.store.snapshots import MAIN, Conflict, SnapshotStore

_MOST = 2000
"""Characters of a reason."""
_ATTEMPTS = 20


class FailedPartition(Frozen):
    """One partition that could not be made; its key is None for a table that is read whole."""

    partition: str | None
    reason: str
    run: str
    """Dagster run id."""
    time: Time


class FailedPartitions(Frozen):
    """The partitions of one asset that could not be made."""

    schema_version: Literal[1] = 1
    key: str
    failed: tuple[FailedPartition, ...] = Field(strict=False)


def note_failures(
    state: PipelineState, address: Address, run: str, reasons: Mapping[str | None, str]
) -> None:
    """Write down why partitions could not be made, beside those that are not made yet.

    Args:
        reasons: partition -> the error's words.

    Raises:
        StorageError: the store cannot be written, or other writers were always first.
    """
    now = datetime.now(UTC)
    new = [
        FailedPartition(partition=key, reason=why[:_MOST], run=run, time=now)
        for key, why in reasons.items()
    ]
    for _ in range(_ATTEMPTS):
        kept = [one for one in _of_asset(state, address) if one.partition not in reasons]
        found = FailedPartitions(key=address.key, failed=(*kept, *new))
        if _is_published(state, address, found, run):
            return
        state = state.at(state.store.resolve(MAIN))
    raise StorageError(
        f"Failures of {address.key} were not recorded: other writers were first in {_ATTEMPTS}"
        " attempts."
    )


def _is_published(
    state: PipelineState, address: Address, found: FailedPartitions, run: str
) -> bool:
    """Publish the failures of an asset; False where another writer was first."""
    data = canonical_json(found)
    key = digest_of([_path(address), data.decode(), state.commit])
    with state.store.open(state.commit, key) as workspace:
        workspace.put_bytes(_path(address), data)
        workspace.commit(f"failed {address.key}", {"run": run})
        return not isinstance(workspace.publish(), Conflict)


def forget_failures(store: SnapshotStore, pipeline: str, stages: Collection[str]) -> None:
    """Take back what was written down of stages of which nothing is due any more."""
    commit = store.resolve(MAIN)
    paths = [entry.path for entry in store.list(commit, _home(pipeline))]
    gone = [path for path in paths if _address(path).stage in stages]
    if not gone:
        return
    with store.open(commit, digest_of([commit, *gone])) as workspace:
        for path in gone:
            workspace.remove(path)
        workspace.commit(f"no failure of {pipeline}", {})
        workspace.publish()


def log_of(run: str) -> str:
    """Where all of a failure is told: a line to put below it."""
    return f"\n    the whole log: ml-assets ops logs {run[:8]}"


def data_failure(state: PipelineState) -> str | None:
    """The newest failure of a data stage that was not made good, in words; None: there is none.

    For people at this machine: what it quotes is in it.
    """
    found = [(one, asset) for asset in _assets(state) for one in _of_asset(state, asset)]
    if not found:
        return None
    newest, asset = max(found, key=lambda pair: pair[0].time)
    others = len(found) - 1
    more = f" ({counted(others, 'more failure')} of data stages)" if others else ""
    return (
        f"data is missing: {asset.at(newest.partition)} failed at {newest.time:%Y-%m-%d %H:%M} UTC"
        f" in run {newest.run[:8]}{more}: {own_lines(newest.reason)}"
        f"{log_of(newest.run)}"
    )


def failed_partitions(state: PipelineState) -> dict[str, list[str | None]]:
    """Asset key -> its partitions that are still to be made after a failure; None: all of it."""
    found = {one.key: [f.partition for f in _of_asset(state, one)] for one in _assets(state)}
    return {key: partitions for key, partitions in found.items() if partitions}


def _assets(state: PipelineState) -> list[Address]:
    """Those of which something was written down."""
    return [_address(entry.path) for entry in state.store.list(state.commit, _home(state.name))]


def _address(path: str) -> Address:
    return Address.of(path.removeprefix("failures/").removesuffix(".json"))


def _of_asset(state: PipelineState, address: Address) -> list[FailedPartition]:
    """What failed and was not made since."""
    path = _path(address)
    if not state.exists(path):
        return []
    found = read_as(state.store, state.commit, path, FailedPartitions).failed
    records = ((one, state.record(address.at(one.partition))) for one in found)
    return [one for one, record in records if record is None or record.time < one.time]


def _home(pipeline: str) -> str:
    return f"failures/{pipeline}/"


def _path(address: Address) -> str:
    return f"failures/{address.key}.json"
