"""Finds how long a pipeline's data steps took: from the states of ``main`` that they published, and
from the records of runs, which outlive those."""

import re
from collections.abc import Container, Iterable, Sequence
from typing import Literal

from pydantic import ValidationError

from ml_assets.errors import StorageError
from ml_assets.records.experiments import folders
from ml_assets.settings import Prices, price_class
from ml_assets.spec.base import Frozen, canonical_json
from ml_assets.spec.records import Time
from ml_assets.store.snapshots import MAIN, TOOK_KEY, CommitId, SnapshotStore

FILE = "data_steps.json"
_MICROSECONDS = re.compile(r"\d{1,15}")


class DataStep(Frozen):
    """One table or training set that was made."""

    commit: CommitId
    """That published it: what makes it one of its own."""
    address: str
    took: int
    """Microseconds of the machine that runs the steps."""
    ended: Time
    node_hour: str | None
    """Price of an hour of that machine then; None: not known."""


class DataSteps(Frozen):
    """The data steps that no run before had written down."""

    schema_version: Literal[1] = 1
    steps: tuple[DataStep, ...]


def data_steps(store: SnapshotStore, pipeline: str, now: Prices) -> tuple[DataStep, ...]:
    """All that are known, each once, oldest first.

    Args:
        now: prices for what has none of its own time.

    Raises:
        StorageError: a record cannot be read.
    """
    kept, hour = _kept(store, pipeline), _hour(now)
    steps = (*kept, *_new(store, pipeline, kept, now))
    priced = (s if s.node_hour else s.model_copy(update={"node_hour": hour}) for s in steps)
    return tuple(sorted(priced, key=lambda one: one.ended))


def last_took(steps: Iterable[DataStep], addresses: Container[str]) -> int:
    """Microseconds that tables took when each was made last; those that nobody timed took none.

    Args:
        steps: oldest first.
    """
    return sum({one.address: one.took for one in steps if one.address in addresses}.values())


def data_step_files(store: SnapshotStore, pipeline: str, now: Prices) -> dict[str, bytes]:
    """A file for a run's folder: the steps that no run has written down yet."""
    new = _new(store, pipeline, _kept(store, pipeline), now)
    return {FILE: canonical_json(DataSteps(steps=new))} if new else {}


def _kept(store: SnapshotStore, pipeline: str) -> tuple[DataStep, ...]:
    """Those that runs wrote down; two that did at the same time wrote the same ones."""
    commit = store.resolve(MAIN)
    found: dict[CommitId, DataStep] = {}
    for folder in reversed(folders(store, commit, pipeline)):
        if FILE in folder.files:
            path = f"{folder.path}{FILE}"
            try:
                read = DataSteps.model_validate_json(store.read_bytes(commit, path))
            except ValidationError as error:
                raise StorageError(f"{path} cannot be read: {error}") from error
            for step in read.steps:
                found.setdefault(step.commit, step)
    return tuple(found.values())


def _new(
    store: SnapshotStore, pipeline: str, kept: Sequence[DataStep], now: Prices
) -> tuple[DataStep, ...]:
    known = {step.commit for step in kept}
    hour = _hour(now)
    return tuple(
        DataStep(
            commit=commit.id,
            address=commit.message,
            took=int(took),
            ended=commit.time,
            node_hour=hour,
        )
        for commit in reversed(store.history())
        if commit.message.startswith(f"{pipeline}/")
        and commit.id not in known
        and _MICROSECONDS.fullmatch(took := commit.metadata.get(TOOK_KEY, ""))
    )


def _hour(now: Prices) -> str | None:
    hour = now.node_hour(price_class(spot=False), 0)
    return None if hour is None else str(hour)
