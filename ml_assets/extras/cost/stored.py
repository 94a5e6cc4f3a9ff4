"""What lies in the stores because of a pipeline, in bytes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ml_assets.automation.housekeeping.inventory import objects
from ml_assets.automation.housekeeping.inventory_s3 import objects_on_s3
from ml_assets.automation.housekeeping.retention import Thing
from ml_assets.errors import StoreAway
from ml_assets.store.pipeline_context import Workplace
from ml_assets.store.s3.objects import S3Objects
from ml_assets.store.snapshots import MAIN

_IN_SNAPSHOTS = ("tables", "records", "ledger", "experiments", "quarantine")
"""``<kind>/<pipeline>/...``; what only older states of ``main`` hold: see `ml-assets ops gc`."""


@dataclass(frozen=True)
class Stored:
    """Bytes by pipeline and kind, and those of sessions."""

    by_pipeline: Mapping[str, Mapping[str, int]]
    by_job: Mapping[str, int]
    """A session's events, checkpoints and model."""
    left_out: str = ""
    """What could not be looked at, and why."""

    def of(self, pipeline: str) -> int:
        return sum(self.by_pipeline.get(pipeline, {}).values())


@dataclass
class _Counts:
    by_pipeline: dict[str, Counter[str]] = field(default_factory=dict)
    by_job: Counter[str] = field(default_factory=Counter)

    def add(self, pipeline: str, kind: str, size: int) -> None:
        self.by_pipeline.setdefault(pipeline, Counter())[kind] += size


def stored(place: Workplace, kept_at: str | None) -> Stored:
    """Everything that lies in the stores of a pipeline now, of every pipeline there.

    Args:
        kept_at: the place that holds the checkpoints of every session; None: beside each.
    """
    counts = _Counts()
    things, left_out = _things(place, kept_at)
    for thing in things:
        _count(thing, counts)
    for entry in place.store.list(place.store.resolve(MAIN)):
        kind, _, rest = entry.path.partition("/")
        if kind in _IN_SNAPSHOTS:
            counts.add(rest.partition("/")[0], kind, entry.size)
    return Stored(counts.by_pipeline, counts.by_job, left_out)


def _things(place: Workplace, kept_at: str | None) -> tuple[Sequence[Thing], str]:
    """What lies in the object store, and what of it cannot be told now: on S3 what lies there, not
    what this machine has fetched of it."""
    try:
        if isinstance(place.objects, S3Objects):
            return objects_on_s3(place.objects), ""
        return objects(place.objects, place.scratch, kept_at), ""
    except StoreAway as error:
        if isinstance(place.objects, S3Objects):
            return [], f"objects: {error}"
        return objects(place.objects, place.scratch), f"checkpoints: {error}"


def _count(thing: Thing, counts: _Counts) -> None:
    """Whose a thing is; scratch is nobody's."""
    session = _session(thing)
    if session is not None:
        counts.by_job[session] += thing.bytes
        counts.add(session.rsplit("-", 2)[0], thing.kind, thing.bytes)
    elif thing.kind in ("shards", "reports") and thing.path is not None:
        counts.add(thing.path.parent.name, thing.kind, thing.bytes)


def _session(thing: Thing) -> str | None:
    """The session that a thing is of: itself, its checkpoints, or the model that it made."""
    if thing.kind == "sessions":
        return thing.name
    if thing.kind == "checkpoints":
        return thing.name.partition("/")[0]
    if thing.kind == "models":
        return next((name for name in thing.needs if len(name.rsplit("-", 2)) == 3), None)
    return None
