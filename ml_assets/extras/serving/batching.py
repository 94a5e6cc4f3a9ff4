"""Dynamic batching: rows that wait while the model computes form the next batch.

A lone request waits for nobody. The queue is bounded: when it is full, a request is refused at
once, because a late answer helps nobody.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ml_assets.errors import MlAssetsError, counted
from ml_assets.extras.serving.encoding import Encoded

Predictions = NDArray[np.float64]


class QueueFull(MlAssetsError):
    """More rows wait than the server takes on; try again in a moment."""


@dataclass(frozen=True)
class Limits:
    """Holds what a server takes on."""

    batch_rows: int = 256
    """The most rows that are computed together; a request of more is computed alone."""
    batch_wait: float = 0.0
    """Seconds that a batch waits to be filled, once the model is idle."""
    queue_rows: int = 4096
    """The most rows that wait; a request of more is refused for good."""
    body_bytes: int = 4 << 20
    arriving_bytes: int = 64 << 20
    """For the bodies of all requests together, until each is read."""
    seconds: float = 10.0
    """For one request, from its first byte to its answer."""


@dataclass(frozen=True)
class _Waiting:
    rows: Encoded
    answer: asyncio.Future[Predictions]


@dataclass
class Batcher:
    """Puts together what waits for one model."""

    predict: Callable[[Encoded], Awaitable[Predictions]]
    limits: Limits
    computed: Callable[[int], None]
    """Is told the rows of each batch."""
    rows: int = 0
    """Rows that wait or are computed."""
    _queue: deque[_Waiting] = field(default_factory=deque)
    _came: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, rows: Encoded) -> Predictions:
        """Predictions [rows, outputs].

        Raises:
            QueueFull: too many rows wait.
            MlAssetsError: the model cannot say; the message gives the reason.
        """
        if self.rows and self.rows + len(rows) > self.limits.queue_rows:
            raise QueueFull(
                f"The queue is full: {counted(self.rows, 'row', 'wait')}, at most"
                f" {self.limits.queue_rows} may, and this request has {len(rows)}: try again in a"
                " moment."
            )
        self.rows += len(rows)
        waiting = _Waiting(rows, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._came.set()
        try:
            return await waiting.answer
        finally:
            self.rows -= len(rows)

    async def run(self) -> None:
        """Compute batch after batch, until cancelled."""
        while True:
            await self._came.wait()
            if self.limits.batch_wait:
                await asyncio.sleep(self.limits.batch_wait)
            batch = self._next()
            if batch:
                await self._compute(batch)

    def _next(self) -> list[_Waiting]:
        """What is computed together next, oldest first; what nobody waits for any more is left."""
        batch: list[_Waiting] = []
        taken = 0
        while self._queue:
            first = self._queue[0]
            if batch and taken + len(first.rows) > self.limits.batch_rows:
                return batch
            self._queue.popleft()
            if not first.answer.done():
                batch.append(first)
                taken += len(first.rows)
        self._came.clear()
        return batch

    async def _compute(self, batch: list[_Waiting]) -> None:
        try:
            together = Encoded.together([one.rows for one in batch])
            found = await self.predict(together)
        except Exception as error:  # whoever waits is told
            for one in batch:
                if not one.answer.done():
                    one.answer.set_exception(error)
            return
        self.computed(len(together))
        first = 0
        for one in batch:
            last = first + len(one.rows)
            if not one.answer.done():
                one.answer.set_result(found[first:last])
            first = last
