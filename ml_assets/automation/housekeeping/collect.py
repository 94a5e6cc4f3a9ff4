"""Cleans up the state folder: lists what is there, judges it, deletes what may go.

Safe at any time. Work that the lock of the state folder does not cover (runs of the UI) is
protected by its session's lock, by the states of ``main`` since it began, and by the grace period.
Each deletion is whole or not at all: a kill leaves less to do, and never harm.
"""

import dataclasses
import fcntl
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import dagster as dg

from ml_assets.assets.released_model.tags import tag_releases
from ml_assets.automation.housekeeping import run_logs
from ml_assets.automation.housekeeping.inventory import last_used, left_behind, measure, objects
from ml_assets.automation.housekeeping.inventory_s3 import objects_on_s3
from ml_assets.automation.housekeeping.reach import reached
from ml_assets.automation.housekeeping.retention import (
    KINDS,
    DeletionPlan,
    Kind,
    Thing,
    checkpoints_of,
    commit_name,
    decide,
    run_name,
)
from ml_assets.errors import StoreAway, counted
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.records.ledger.chain import pipelines_with_ledger
from ml_assets.records.tracking.mlflow import Tracking
from ml_assets.records.tracking.outbox import Outbox
from ml_assets.settings import Settings
from ml_assets.store.home import exclusive
from ml_assets.store.local_checkpoints import discard_all, stored_at
from ml_assets.store.open import open_objects, open_snapshots, other_stores, register_store
from ml_assets.store.s3.client import S3Place
from ml_assets.store.s3.objects import S3Objects
from ml_assets.store.snapshots import MAIN, Busy, ByServer, Conflict, SnapshotStore, utc_now

QUARANTINE = "quarantine/"
MANIFESTS = (
    "/schema.json",
    "/shard.json",
    "/model.json",
    "/manifest.json",
    "/result.json",
    "/request.json",
)
"""On S3 these go first: what is half deleted is not whole."""


@dataclass(frozen=True)
class Tally:
    """The result of house-keeping for one kind."""

    freed_things: int
    freed_bytes: int
    kept_things: int
    kept_bytes: int


@dataclass(frozen=True)
class CollectionResult:
    """The plan, and what it freed; in a dry run: what it would free."""

    plan: DeletionPlan
    tallies: Mapping[Kind, Tally]
    left: tuple[str, ...]
    """What could not be done now, and why."""

    @property
    def freed_bytes(self) -> int:
        return sum(tally.freed_bytes for tally in self.tallies.values())


class Housekeeping:
    """One house-keeping of one state folder.

    Args:
        run: the Dagster run that this is part of, if any: it does not protect itself.
    """

    def __init__(
        self,
        settings: Settings,
        instance: dg.DagsterInstance,
        run: str | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.settings = settings
        self.instance = instance
        self.store: SnapshotStore = open_snapshots(settings.snapshots, clock)
        self.objects = open_objects(settings.objects, settings.cache)
        self._run = run
        self._now = clock()
        self._left: list[str] = []

    def plan(self) -> DeletionPlan:
        """Judge everything that is there.

        Raises:
            StorageError: a ledger is broken: nothing may be deleted.
        """
        since = self._now - self.settings.retention.grace
        begun = run_logs.oldest_in_progress(self.instance, self._run)
        keep = reached(self.store, min(since, begun) if begun else since)
        things = [
            *self._history(),
            *self._quarantine(),
            *self._objects(),
            *self._mlflow_locks(),
            *run_logs.runs(self.instance),
        ]
        return decide(things, keep, self.settings.retention, self._now)

    def collect(self, *, dry_run: bool = False) -> CollectionResult:
        """Judge everything, and delete what may go.

        Raises:
            StateInUse: another house-keeping is at work.
            StorageError: a ledger is broken: nothing was deleted.
        """
        remedy = "The other one does the same work; run again later."
        with exclusive(self.settings.home / "housekeeping.lock", "house-keeping", remedy):
            if not dry_run:
                self._tag_releases()
                self._tell_mlflow()
                with suppress(StoreAway):  # told below, where the objects are judged
                    register_store(self.objects, self.settings.snapshots, again=True)
            plan = self.plan()
            tallies: dict[Kind, Tally] = {}
            for kind in KINDS:
                tallies[kind] = self._collect(plan, kind, dry_run)
        return CollectionResult(plan, tallies, tuple(self._left))

    def _tag_releases(self) -> None:
        """What a process was killed before, or a server did not answer to."""
        head = self.store.resolve(MAIN)
        for pipeline in pipelines_with_ledger(self.store, head):
            self._left += [f"tag {failed}" for failed in tag_releases(self.store, pipeline)]

    def _tell_mlflow(self) -> None:
        """What it could not take before, while the sessions that hold it are still there."""
        outbox = Outbox(self.settings.home, self.objects)
        found = outbox.deliver(Tracking.of(self.settings))
        if found.left:
            self._left.append(f"{counted(found.left, 'session')} for MLflow: {found.reason}")

    # --- what is there --------------------------------------------------------------------------

    def _history(self) -> list[Thing]:
        """The states of ``main``, each used until the next one took its place.

        The bytes that each one alone reaches are told by the store.
        """
        states = self.store.history()
        replaced = (states[:1] + states)[: len(states)]
        return [
            Thing("history", commit_name(state.id), 0, 0, newer.time)
            for state, newer in zip(states, replaced, strict=True)
        ]

    def _quarantine(self) -> list[Thing]:
        """Rejected rows on ``main``, as old as the first state that has them."""
        entries = self.store.list(self.store.resolve(MAIN), QUARANTINE)
        since = {entry.path: self._now for entry in entries}
        there = {entry.path: entry.digest for entry in entries}
        for commit in self.store.log():
            if not there:
                break
            then = {entry.path: entry.digest for entry in self.store.list(commit.id, QUARANTINE)}
            there = {path: digest for path, digest in there.items() if then.get(path) == digest}
            since |= dict.fromkeys(there, commit.time)
        return [Thing("quarantine", e.path, 1, e.size, since[e.path]) for e in entries]

    def _objects(self) -> list[Thing]:
        """Where the store of the checkpoints is away, no session is judged."""
        kept_at = self.settings.checkpoints
        try:
            if isinstance(self.objects, S3Objects):
                return [
                    *self._judged_here(self.objects),
                    *left_behind(self.objects, self.settings.scratch),
                ]
            return objects(self.objects, self.settings.scratch, kept_at)
        except StoreAway as error:
            if isinstance(self.objects, S3Objects):
                self._left.append(f"objects: {error}")
                return list(left_behind(self.objects, self.settings.scratch))
            self._left.append(f"sessions and their checkpoints: {error}")
            found = objects(self.objects, self.settings.scratch)
            return [thing for thing in found if thing.kind not in ("sessions", "checkpoints")]

    def _judged_here(self, store: S3Objects) -> list[Thing]:
        """What lies on S3, as far as this house can tell whether anybody needs it."""
        found = objects_on_s3(store, self.settings.checkpoints)
        told = other_stores(store, self.settings.snapshots)
        if not told:
            return found
        self._left.append(f"objects: {told}")
        return [thing for thing in found if thing.kind == "scratch"]

    def _mlflow_locks(self) -> list[Thing]:
        """One for each training session: they pile up."""
        locks = (self.settings.home / "locks").glob("mlflow-*.lock")
        return [
            Thing("scratch", str(lock), *measure(lock), last_used("scratch", lock), path=lock)
            for lock in locks
        ]

    # --- deleting: each returns the number of things and the bytes freed ------------------------

    def _collect(self, plan: DeletionPlan, kind: Kind, dry_run: bool) -> Tally:
        dropped = [verdict.thing for verdict in plan.dropped(kind)]
        kept = [verdict.thing for verdict in plan.kept(kind)]
        if kind == "history":
            return self._collect_history(dropped, len(kept), dry_run)
        if kind == "quarantine":
            if dropped and not dry_run:
                self._remove_quarantined(dropped)
            # the bytes are those of the history that still has them
            return Tally(len(dropped), 0, len(kept), _bytes(kept))
        if dry_run:
            return Tally(len(dropped), _bytes(dropped), len(kept), _bytes(kept))
        freed = {thing.name: self._drop(thing) for thing in dropped}
        left = [thing for thing in dropped if freed[thing.name] is None]
        gone = [size for size in freed.values() if size is not None]
        return Tally(len(gone), sum(gone), len(kept) + len(left), _bytes(kept) + _bytes(left))

    def _collect_history(self, dropped: list[Thing], kept: int, dry_run: bool) -> Tally:
        old = [thing.name.removeprefix(commit_name("")) for thing in dropped]
        done = self.store.collect_garbage(drop=old, dry_run=dry_run)
        if isinstance(done, ByServer):
            what = f"{counted(len(old), 'old state')} for the server's own garbage collection"
            went = f"{counted(len(done.branches), 'left-over')} of killed processes"
            self._left.append(f"history: {what}; {went} {'would go' if dry_run else 'went'}")
            return Tally(0, 0, kept + len(dropped), 0)
        if isinstance(done, Busy):
            self._left.append(
                "history: something is being published; the next house-keeping deletes it"
            )
            return Tally(0, 0, kept + len(dropped), 0)
        return Tally(len(dropped), done.freed_bytes, kept, done.kept_bytes)

    def _remove_quarantined(self, dropped: list[Thing]) -> None:
        base = self.store.resolve(MAIN)
        with self.store.open(base, f"housekeeping-{base}") as workspace:
            for thing in dropped:
                workspace.remove(thing.name)
            workspace.commit(f"remove {counted(len(dropped), 'old table')} of rejected rows", {})
            outcome = workspace.publish()
        if isinstance(outcome, Conflict):
            self._left.append(
                "quarantine: rows were rejected meanwhile; the next house-keeping deletes "
                "the old ones"
            )

    def _drop(self, thing: Thing) -> int | None:
        """Bytes freed; None where it was taken up again, or somebody works with it now."""
        if thing.kind == "run_logs":
            return run_logs.delete(self.instance, thing.name.removeprefix(run_name("")))
        store = self.objects.place.uri if isinstance(self.objects, S3Objects) else None
        if thing.address is not None and store and thing.address.startswith(f"{store}/"):
            return self._drop_on_s3(thing, thing.address)
        if thing.address is not None:
            return self._drop_apart(thing, thing.address)
        if thing.path is None:
            return None
        if thing.kind == "scratch" and (kind := self._cached(thing.path)):
            as_it_is_there = dataclasses.replace(thing, kind=kind)
            return thing.bytes if self._discard(as_it_is_there) else None
        if thing.kind == "scratch":
            return thing.bytes if _delete_scratch(thing.path) else None
        session = {"sessions": thing.path, "checkpoints": thing.path.parent}.get(thing.kind)
        if session is None:
            return thing.bytes if self._discard(thing) else None
        if not session.is_dir():
            return None
        with SessionFolder(session).idle() as idle:
            return thing.bytes if idle and self._discard(thing) else None

    def _drop_apart(self, thing: Thing, address: str) -> int | None:
        """Checkpoints that lie in a place of their own, unless they were written to since."""
        name = thing.name.removesuffix(checkpoints_of(""))
        session = self.objects.path("sessions", name)
        here = session.is_dir()
        if not here and not isinstance(self.objects, S3Objects):
            return None
        with SessionFolder(session).idle() if here else nullcontext(True) as idle:
            stored = stored_at(address) if idle else None
            if stored is None or stored.changed > thing.used:
                return None
            discard_all(address)
        return thing.bytes

    def _drop_on_s3(self, thing: Thing, address: str) -> int | None:
        """What nobody took up again since, manifests first; then what this machine has of it."""
        if thing.kind == "reports":
            folder, _, name = address.rpartition("/")
            S3Place(folder).discard(name)
        else:
            place = S3Place(address)
            if any(item.changed > thing.used for item in place.items()):
                return None
            place.discard_below(first=MANIFESTS)
        if thing.path is not None and thing.path.exists():
            self._discard(thing)
        return thing.bytes

    def _cached(self, path: Path) -> Kind | None:
        """The kind of a folder of the cache; None: it is something else."""
        if not isinstance(self.objects, S3Objects) or not path.is_relative_to(self.objects.root):
            return None
        top = path.relative_to(self.objects.root).parts[0]
        return next((kind for kind in KINDS if kind == top), None)

    def _discard(self, thing: Thing) -> bool:
        assert thing.path is not None
        return self.objects.discard(
            thing.path, still=lambda moved: last_used(thing.kind, moved) <= thing.used
        )


def _delete_scratch(path: Path) -> bool:
    """Delete what nobody will look for; a lock that is held stays."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        return not path.exists()
    try:
        with path.open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    except (BlockingIOError, FileNotFoundError):
        return False
    return True


def _bytes(things: list[Thing]) -> int:
    return sum(thing.bytes for thing in things)
