"""Following the ledger: a release or a rollback is taken up by itself, without a failed request.

The release that answers stays until the next one is verified, loaded and tried. What cannot be
taken up is told and tried again; only a recall silences the server, for it says that what answers
must not be used.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ml_assets.assets.released_model.released import find_release
from ml_assets.errors import MlAssetsError, Recalled
from ml_assets.extras.serving.batching import Limits
from ml_assets.extras.serving.golden import golden_vectors
from ml_assets.extras.serving.metrics import Metrics
from ml_assets.extras.serving.served import ServedModel
from ml_assets.records.loading import LoadedRelease
from ml_assets.store.pipeline_context import Pipeline

_LONGEST_SECONDS = 60.0


class NotServing(MlAssetsError):
    """Nothing answers: no release is loaded yet, or it was recalled."""


@dataclass
class Following:
    """The release that answers, and what the ledger says of it."""

    pipeline: Pipeline
    limits: Limits
    metrics: Metrics
    every: float
    """Seconds between two looks at the ledger."""
    tell: Callable[[str], None]
    _served: ServedModel | None = None
    _why_not: str = "the release is being verified and tried"
    _seen: frozenset[tuple[str, str]] = frozenset()
    _closing: set[asyncio.Task[None]] = field(default_factory=set)
    _store: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    """One thread reads the stores, so that no look waits in the way of a request."""

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
        """
        run = asyncio.get_running_loop().run_in_executor
        news = await run(self._store, self._news)
        if news is None:
            return
        release, seen = news
        if self._served is None or self._served.release.model != release.model:
            await self._take_up(release)
        else:
            self._served.release = release
        self.metrics.serves(release)
        self._seen = seen

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        failed = 0
        while True:
            await asyncio.sleep(min(self.every * 2**failed, _LONGEST_SECONDS))
            try:
                await self.look()
                failed = 0
            except MlAssetsError as error:
                failed = min(failed + 1, 10)
                self.metrics.refusals.inc()
                self.tell(f"not taken up: {error}")
                if isinstance(error, Recalled):
                    self._withdraw(str(error))

    async def end(self) -> None:
        """Answer whoever waits, and end every process."""
        self._withdraw("the server ends")
        await asyncio.gather(*self._closing)
        self._store.shutdown()

    def _news(self) -> tuple[LoadedRelease, frozenset[tuple[str, str]]] | None:
        """The release, verified, where the ledger or the recalls have changed; else None."""
        name, store = self.pipeline.name, self.pipeline.store
        commit = store.resolve()
        folders = (f"ledger/{name}/", f"certificates/{name}/", "recalls/")
        files = (entry for folder in folders for entry in store.list(commit, folder))
        found = frozenset((entry.path, entry.digest) for entry in files)
        return None if found == self._seen else (find_release(self.pipeline), found)

    async def _take_up(self, release: LoadedRelease) -> None:
        run = asyncio.get_running_loop().run_in_executor
        served = ServedModel.of(self.pipeline, release, self.limits, self.metrics)
        try:
            await served.replay(await run(self._store, golden_vectors, self.pipeline, release))
        except BaseException:
            await served.close()
            raise
        self._withdraw("another release takes its place")  # in one breath: no request comes between
        self._served = served
        self.metrics.switches.inc()
        line = release.entry.seq
        self.tell(f"{self.pipeline.name}: model {served.version} answers (ledger line {line})")

    def _withdraw(self, why: str) -> None:
        before, self._served, self._why_not = self._served, None, why
        self.metrics.serves(None)
        if before is not None:
            closing = asyncio.create_task(before.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
