"""Follows the ledger: the server takes up a release or a rollback by itself, without a failed
request.

The present release answers until the next one is verified, loaded and tried. A failure is reported
and tried again. If the spec has a rollout, the model in canary is followed beside it.

Only a recall silences the server, because it forbids the present model; so does a recall that is
lost or damaged, because nobody can tell what it forbids. A task and a thread of their own ask for
recalls: they wait for no model that is being loaded.
"""

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from ml_assets.assets.released_model.handover import golden_vectors
from ml_assets.assets.released_model.rollback import abort
from ml_assets.errors import (
    DiskRefuses,
    MlAssetsError,
    NothingReleased,
    Recalled,
    StorageError,
    StoreAway,
)
from ml_assets.extras.serving.batching import Limits
from ml_assets.extras.serving.metrics import Metrics
from ml_assets.extras.serving.served_release import ServedModel
from ml_assets.records.load_release import LoadedRelease, find_release, load_release
from ml_assets.records.recalls import require_sound_model
from ml_assets.store.kept_code import certified_network
from ml_assets.store.open import has_snapshots
from ml_assets.store.pipeline_context import Pipeline

_RECALLS = "recalls/"
_LONGEST_SECONDS = 60.0
_TRY_SECONDS = 300.0
_NO_ANSWER = {errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT}
"""What the system says where it or a network disk cannot answer: nothing of what lies there."""
_REMEDIES = (" Delete the file and make the asset again.", " Make the asset again.")
"""How a message ends about what can be made again; a recall cannot."""
T = TypeVar("T")


class NotServing(MlAssetsError):
    """Nothing answers: no release is loaded yet, or it was recalled."""


class CanaryNotServing(MlAssetsError):
    """The model in canary cannot be taken up; the champion answers alone."""


@dataclass
class Following:
    """The release that answers, and what the ledger says of it."""

    pipeline: Pipeline
    limits: Limits
    metrics: Metrics
    every: float
    """Seconds between two looks at the ledger."""
    tell: Callable[[str], None]
    try_seconds: float = _TRY_SECONDS
    """For a model's process to start, load it and answer its golden vectors."""
    canary: ServedModel | None = None
    """The model in canary, where it answers."""
    _served: ServedModel | None = None
    _aborted: dict[str, str] = field(default_factory=dict)
    """Models that traffic showed to be bad -> why; out, whether the ledger has the line or not."""
    _why_not: str = "the release is being verified and tried"
    seen: frozenset[tuple[str, str]] | None = None
    """The lines and recalls that were looked at; None: none yet."""
    noticed: frozenset[tuple[str, str]] | None = None
    """Those that are there, whether they could be taken up or not."""
    _recalls_seen: set[str] = field(default_factory=set)
    """Files of recalls that silenced a model."""
    _commit: str = ""
    """The newest one of which it is known that it says what was seen."""
    _closing: set[asyncio.Task[None]] = field(default_factory=set)
    _store: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    """One thread reads the stores, so that no look waits in the way of a request."""
    _recalls: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    """Another one asks for recalls, so that no look waits in the way of a recall."""

    @property
    def served(self) -> ServedModel:
        """The release that answers now.

        Raises:
            NotServing: none does.
        """
        if self._served is None:
            raise NotServing(f"{self.pipeline.name} is not served: {self._why_not}.")
        return self._served

    @property
    def ready(self) -> bool:
        return self._served is not None

    async def look(self) -> None:
        """Take up what the ledger names, if that is news.

        Raises:
            MlAssetsError: it cannot be taken up; what answered before still does.
            CanaryNotServing: the model in canary cannot; the release of the ledger answers.
        """
        news = await self._read(self._news)
        if news is None:
            return
        release, seen = news
        aborts = len(self._aborted)
        if self._served is None or self._served.release.model != release.model:
            await self._take_up(release)
        else:
            self._served.release = release
        self._show()
        if self.pipeline.spec.release.rollout is not None:
            await self._follow_canary()
        # else the next look writes the line of the abort, or takes up what was silenced meanwhile
        if len(self._aborted) == aborts and self._served is not None:
            self.seen = seen

    async def abort(self, canary: ServedModel, reason: str) -> None:
        """Take the model in canary out at once, and write the line of the ledger.

        Where the line cannot be written now, it is tried again; the model is out meanwhile.
        """
        self._aborted[canary.digest] = reason
        self.metrics.aborts.inc()
        self.tell(f"{self.pipeline.name}: model {canary.version} is out of canary: {reason}")
        self._withdraw_canary()
        self.seen = None  # the next look writes the line

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        failed = 0
        while True:
            await asyncio.sleep(min(self.every * 2**failed, _LONGEST_SECONDS))
            try:
                await self.look()
                failed = 0
            except Exception as error:  # whatever a store says while it is away
                most = 3 if isinstance(error, CanaryNotServing) else 10  # the champion is followed
                failed = min(failed + 1, most)
                self.metrics.refusals.inc()
                known = isinstance(error, MlAssetsError)
                self.tell(f"not loaded: {error if known else repr(error)}")
                if isinstance(error, Recalled):
                    self._withdraw_canary()
                    self._withdraw(str(error))

    async def watch(self) -> None:
        """Silence what is recalled, again and again, until cancelled.

        No look is waited for: it may load another model for minutes, or hang.
        """
        while True:
            await asyncio.sleep(self.every)
            await self._silence()

    async def _silence(self) -> None:
        """Silence what is recalled of what answers now."""
        for served in filter(None, (self._served, self.canary)):
            why = await asyncio.get_running_loop().run_in_executor(
                self._recalls, self._forbidden, served.digest
            )
            if not why or all(served is not one for one in (self._served, self.canary)):
                continue
            self._withdraw_canary()
            if served is self._served:
                self._withdraw(why)
            self.seen = None  # the next look takes up what may be used
            self.tell(f"{self.pipeline.name}: model {served.version} is not served any more: {why}")

    def _forbidden(self, model: str) -> str:
        """Why a model may not be used; empty: it may, or the store does not answer."""
        store = self.pipeline.store
        try:
            require_sound_model(store, store.resolve(), self.pipeline.name, model)
        except Recalled as error:
            with suppress(Exception):  # the next look lists them, too
                there = store.list(store.resolve(), _RECALLS)
                self._recalls_seen |= {entry.path for entry in there}
            return str(error)
        except Exception as error:
            if _is_away(error, self.pipeline.settings.snapshots):
                return ""
            said = str(error) if isinstance(error, MlAssetsError) else repr(error)
            for remedy in _REMEDIES:
                said = said.removesuffix(remedy)
            return (
                f"nobody can tell whether model {model[:12]} is recalled: {said} It is not used"
                " until that can be read again: put the snapshot store back from a backup"
            )
        return ""

    async def end(self) -> None:
        """Answer whoever waits, and end every process."""
        self._withdraw_canary()
        self._withdraw("the server ends")
        await asyncio.gather(*self._closing)
        self._store.shutdown()
        self._recalls.shutdown()

    def _news(self) -> tuple[LoadedRelease, frozenset[tuple[str, str]]] | None:
        """The release, verified, where the ledger or the recalls have changed; else None."""
        name, store = self.pipeline.name, self.pipeline.store
        commit = store.resolve()
        if commit == self._commit and self.seen is not None:
            return None
        folders = (f"ledger/{name}/", f"certificates/{name}/", _RECALLS)
        files = (entry for folder in folders for entry in store.list(commit, folder))
        found = frozenset((entry.path, entry.digest) for entry in files)
        self._require_kept(found)
        self.noticed = found
        if found != self.seen:
            return find_release(self.pipeline), found
        self._commit = commit
        return None

    def _require_kept(self, found: frozenset[tuple[str, str]]) -> None:
        """Lines and certificates stay as they were, and a recall has its file for good.

        Raises:
            StorageError: one that was seen is gone, or another one.
        """
        kept = {(path, digest) for path, digest in self.noticed or () if not _grows(path)}
        paths = {path for path, _ in self.noticed or ()} | self._recalls_seen
        gone = sorted(paths - {path for path, _ in found} | {path for path, _ in kept - found})
        if gone:
            raise StorageError(
                f"{self.pipeline.name}: the store was put back to an earlier state: {gone[0]} is"
                " gone, or another one. Nothing is taken up from there. Find out who did it; if"
                " you restored a backup, restart this server"
            )

    async def _take_up(self, release: LoadedRelease) -> None:
        if self.canary is not None and self.canary.release.model == release.model:
            served, self.canary = self.canary, None  # promoted: it answers already
            served.release = release
        else:
            served = await self._tried(release)
        self._withdraw("another release takes its place")  # in one breath: no request comes between
        self._served = served
        self.metrics.switches.inc()
        line = release.entry.seq
        self.tell(f"{self.pipeline.name}: model {served.version} is served (ledger line {line})")

    async def _tried(self, release: LoadedRelease) -> ServedModel:
        """A model that says of its golden vectors what it has to say, within the time for it."""
        code = await self._read(certified_network, self.pipeline, release.manifest)
        served = ServedModel.of(self.pipeline, release, code, self.limits, self.metrics, self.tell)
        try:
            golden = await self._read(golden_vectors, self.pipeline, release)
            await served.replay(golden, self.try_seconds)
        except BaseException:
            await served.close()
            raise
        return served

    async def _read(self, work: Callable[..., T], *given: object) -> T:
        """Return what a read of the stores comes to; one that takes long is said, each minute."""
        reading = asyncio.get_running_loop().run_in_executor(self._store, work, *given)
        while not (await asyncio.wait([reading], timeout=_LONGEST_SECONDS))[0]:
            self.tell(
                f"{self.pipeline.name}: a look at the ledger has waited for {_LONGEST_SECONDS:g} s"
                " more. What answers now goes on. See whether the stores, their disks and the"
                " network answer."
            )
        return reading.result()

    def _withdraw(self, why: str) -> None:
        before, self._served, self._why_not = self._served, None, why
        self._close(before)

    def _close(self, before: ServedModel | None) -> None:
        self._show()
        if before is not None:
            closing = asyncio.create_task(before.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _show(self) -> None:
        self.metrics.serves([one.release for one in (self._served, self.canary) if one])

    # --- the model in canary ------------------------------------------------------------------

    async def _follow_canary(self) -> None:
        """Take up the model in canary, or let go of one that is not there any more."""
        try:
            release = await self._read(self._in_canary)
            if release is not None and release.model.digest in self._aborted:
                release = None  # it was aborted while the ledger was read
            if self.canary is not None and (
                release is None or release.model != self.canary.release.model
            ):
                self._withdraw_canary()
            if release is not None and self.canary is None:
                await self._take_up_canary(release)
        except MlAssetsError as error:
            self._withdraw_canary()
            raise CanaryNotServing(f"the model in canary is not served: {error}") from error

    def _in_canary(self) -> LoadedRelease | None:
        """The model in canary, verified; a bad one is out, and its line written."""
        try:
            release = load_release(
                self.pipeline.store, self.pipeline.objects, self.pipeline.name, "canary"
            )
        except NothingReleased:
            return None
        reason = self._aborted.get(release.model.digest)
        if reason is None:
            return release
        author = self.pipeline.spec.owner
        line = abort(self.pipeline, release.model.digest, author, reason)
        if line is not None:
            self.tell(f"{self.pipeline.name}: aborted in ledger line {line.seq}")
        return None

    async def _take_up_canary(self, release: LoadedRelease) -> None:
        champion = self.served.release.manifest
        if (release.manifest.task, release.manifest.classes) != (champion.task, champion.classes):
            raise CanaryNotServing("its outputs are not the champion's")
        served = await self._tried(release)
        self.canary = served
        self._show()
        line = release.entry.seq
        self.tell(f"{self.pipeline.name}: model {served.version} is in canary (ledger line {line})")

    def _withdraw_canary(self) -> None:
        before, self.canary = self.canary, None
        if before is not None:
            self._close(before)


def _grows(path: str) -> bool:
    """Return whether a file changes in honest use: a recall reaches more, and is lifted."""
    return path.startswith(_RECALLS)


def _is_away(error: Exception, snapshots: str) -> bool:
    """Return whether a store does not answer: nothing is known to be lost or damaged.

    Args:
        snapshots: where it is; of a folder that is gone or closed, no file can be read.
    """
    if isinstance(error, StoreAway | DiskRefuses | ConnectionError | TimeoutError):
        return True
    if isinstance(error, OSError) and error.errno in _NO_ANSWER:
        return True
    try:
        return not has_snapshots(snapshots)
    except OSError:
        return True
