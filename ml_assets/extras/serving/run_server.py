"""Runs the server: it listens at once, answers when its release is tried, and ends gracefully."""

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType

import uvicorn

from ml_assets.extras.serving.app import Server
from ml_assets.extras.serving.batching import Limits
from ml_assets.extras.serving.follow_ledger import CanaryNotServing, Following
from ml_assets.extras.serving.metrics import Metrics
from ml_assets.extras.serving.traffic import Traffic
from ml_assets.store.pipeline_context import Pipeline

_MOST_CONNECTIONS = 1024
_TURN_SECONDS = 0.0005
"""So long may a thread that reads a store keep a request waiting: a tenth of the default."""


@dataclass(frozen=True)
class Listening:
    """Says where the server listens, and how it begins and ends."""

    host: str
    port: int
    tokens: Sequence[str]
    drain: float
    """Seconds from SIGTERM to the end, in which it answers and says that it is not ready."""
    follow: float
    """Seconds between two looks at the ledger."""


def answer(
    pipeline: Pipeline, listening: Listening, limits: Limits, tell: Callable[[str], None]
) -> None:
    """Answer with a pipeline's release until SIGTERM or SIGINT.

    Raises:
        MlAssetsError: there is no release that holds at the beginning.
    """
    sys.setswitchinterval(_TURN_SECONDS)
    with asyncio.Runner(loop_factory=uvicorn.Config("").get_loop_factory()) as runner:  # uvloop
        runner.run(_answer(pipeline, listening, limits, tell))


async def _answer(
    pipeline: Pipeline, listening: Listening, limits: Limits, tell: Callable[[str], None]
) -> None:
    metrics = Metrics()
    following = Following(pipeline, limits, metrics, listening.follow, tell)
    traffic = Traffic(following, limits, tell)
    server = Server(following, traffic, limits, metrics)
    config = uvicorn.Config(
        server.app(listening.tokens),
        host=listening.host,
        port=listening.port,
        log_level="warning",
        access_log=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(limits.seconds) + 1,
        server_header=False,
    )
    http = _Http(config, server, listening.drain)
    work = (_follow(following), following.watch(), traffic.run())
    beside = [asyncio.create_task(one) for one in work]
    for one in beside:
        one.add_done_callback(lambda _: http.end())  # a server whom nobody watches does not answer
    try:
        await http.serve()
    finally:
        for one in beside:
            one.cancel()
        ended = await asyncio.gather(*beside, return_exceptions=True)
        await following.end()
        await traffic.end()
    for failed in ended:
        if isinstance(failed, Exception):
            raise failed


async def _follow(following: Following) -> None:
    """The first release has to hold; what cannot be taken up later does not end the server."""
    try:
        await following.look()
    except CanaryNotServing as error:
        following.tell(f"not loaded: {error}")
    gc.collect()
    gc.freeze()  # what is loaded stays: no collection goes through it while a request waits
    await following.run()


class _Http(uvicorn.Server):
    """Uvicorn, which at a signal first says that it is not ready, and answers on for a while."""

    def __init__(self, config: uvicorn.Config, server: Server, drain: float) -> None:
        super().__init__(config)
        self._server = server
        self._drain = drain
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._server.draining or sig == signal.SIGINT:
            self.should_exit = True
            return
        self._server.draining = True
        self._loop.call_soon_threadsafe(self._loop.call_later, self._drain, self.end)

    def end(self) -> None:
        self.should_exit = True
