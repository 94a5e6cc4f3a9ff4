"""One served release: its encoder, its warm model, its queue; tried before it answers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ml_assets.assets.released_model.golden import GoldenVectors
from ml_assets.assets.released_model.predict import carried_columns
from ml_assets.assets.training_set.encoding import encode_rows
from ml_assets.extras.serving.batching import Batcher, Limits, Predictions
from ml_assets.extras.serving.encoding import Columns, Encoded, Encoder
from ml_assets.extras.serving.metrics import Metrics
from ml_assets.extras.serving.warm_model import WarmModel
from ml_assets.records.loading import LoadedRelease
from ml_assets.store.networks import certified_network
from ml_assets.store.pipeline_context import Pipeline

VERSION = 12
"""Characters of a model's digest that name its version to clients."""
_IDLE_SECONDS = 0.05
_LARGE = 16 << 10
T = TypeVar("T")


async def aside(size: int, work: Callable[[], T]) -> T:
    """What work comes to: much of it is done in a thread, and the event loop answers others.

    Args:
        size: bytes or values that it goes through.
    """
    return await asyncio.to_thread(work) if size > _LARGE else work()


@dataclass
class ServedModel:
    """A release and the process that computes it."""

    release: LoadedRelease
    encoder: Encoder
    warm: WarmModel
    batcher: Batcher
    metrics: Metrics
    _computing: asyncio.Task[None] = field(init=False)
    _asking: int = 0
    """Requests that are encoded, wait or are computed."""

    def __post_init__(self) -> None:
        self._computing = asyncio.create_task(self.batcher.run())

    @classmethod
    def of(
        cls,
        pipeline: Pipeline,
        release: LoadedRelease,
        limits: Limits,
        metrics: Metrics,
        tell: Callable[[str], None],
    ) -> "ServedModel":
        """The server's view of a release that has not been tried yet."""
        spec, manifest = pipeline.spec, release.manifest
        code = certified_network(pipeline, manifest)

        def told(said: str) -> None:
            tell(f"{pipeline.name}: {said}")

        warm = WarmModel(release, spec.training.threads, told, code)
        batcher = Batcher(warm.predict, limits, metrics.batch.observe)
        encoder = Encoder(manifest, carried_columns(spec, manifest))
        return cls(release, encoder, warm, batcher, metrics)

    @property
    def digest(self) -> str:
        return self.release.model.digest

    @property
    def version(self) -> str:
        return self.digest[:VERSION]

    async def predict(self, columns: Columns, count: int) -> Predictions:
        """Predictions [rows, outputs] of rows by column.

        Raises:
            RowsRefused: they are not what the model reads; every mistake is listed.
            QueueFull: too many rows wait.
            MlAssetsError: the model cannot say.
        """
        self._asking += 1  # it is not ended between the encoding and the queue
        try:
            size = count * len(columns)
            rows = await aside(size, lambda: self.encoder.encode(columns, count))
            found = await self.batcher.ask(rows)
        finally:
            self._asking -= 1
        self.metrics.rows.labels(self.version).inc(count)
        return found

    async def replay(self, golden: GoldenVectors) -> None:
        """Return when the model says of its golden vectors what it has to say.

        Raises:
            StorageError: it says something else, or cannot be loaded.
        """
        rows = Encoded(*encode_rows(golden.rows, self.release.manifest.preprocessing))
        found = await self.batcher.ask(rows)
        golden.require(self.release.model.digest, found)

    async def close(self) -> None:
        """Answer whoever still waits, then end the process."""
        while self._asking or self.batcher.rows:
            await asyncio.sleep(_IDLE_SECONDS)
        self._computing.cancel()
        await self.warm.end()
