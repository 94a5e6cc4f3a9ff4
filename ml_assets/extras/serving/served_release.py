"""One served release: its encoder, its warm model, its queue; tried before it answers.

The warm model is a process of the training program, asked over a pipe: the server itself never
loads torch. A process that dies is started again and its pending request is repeated.
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ml_assets.assets.released_model.handover import GoldenVectors
from ml_assets.assets.released_model.predict import carried_columns, flag_columns
from ml_assets.assets.training_set.encoding import encode_rows
from ml_assets.errors import MlAssetsError, StorageError, counted
from ml_assets.extras.serving.batching import Batcher, Limits, Predictions
from ml_assets.extras.serving.encoding import Columns, Encoded, Encoder
from ml_assets.extras.serving.metrics import Metrics
from ml_assets.launch.local.process import environment
from ml_assets.records.load_release import LoadedModel, LoadedRelease
from ml_assets.spec.base import canonical_json
from ml_assets.spec.network_code import NetworkCode
from ml_assets.spec.training import outputs_of
from ml_assets.spec.training_program.warm_protocol import ANSWER, MODULE, QUESTION
from ml_assets.store.pipeline_context import Pipeline

_ATTEMPTS = 3
_END_SECONDS = 5.0


class ModelGone(MlAssetsError):
    """The process of a model died while it was asked, again and again."""


class ModelHangs(MlAssetsError):
    """The process of a model says nothing while the model is tried."""


@dataclass
class WarmModel:
    """A loaded model in a process of its own, which answers one request at a time."""

    model: LoadedModel
    threads: int
    tell: Callable[[str], None]
    code: NetworkCode | None = None
    """The code of a team's own network."""
    restarts: int = 0
    _process: asyncio.subprocess.Process | None = None
    _scratch: tempfile.TemporaryDirectory[str] | None = None
    """Holds that code for the process."""

    async def predict(self, rows: Encoded) -> NDArray[np.float64]:
        """Predictions [rows, outputs], in the order of the rows.

        Raises:
            StorageError: the model cannot be loaded, or refuses the rows; the message says why.
            ModelGone: its process died each time.
        """
        manifest = self.model.manifest
        question = QUESTION.pack(len(rows)) + rows.numeric.tobytes() + rows.categorical.tobytes()
        version = self.model.model.digest[:12]
        for attempt in range(_ATTEMPTS):
            try:
                answer = await self._ask(question)
            except (ConnectionError, asyncio.IncompleteReadError):
                how = await self.end()
                self.restarts += 1
                self.tell(f"the process of model {version} died{how}: another one is started")
                continue
            if attempt:
                self.tell(f"another process of model {version} is loaded and answers")
            outputs = outputs_of(manifest.task, manifest.classes)
            return np.frombuffer(answer, np.float64).reshape(len(rows), outputs)
        raise ModelGone(
            f"The process of model {version} died {_ATTEMPTS} times while it predicted"
            f" {counted(len(rows), 'row')}. It may lack memory: see the end of its log."
        )

    async def end(self) -> str:
        """End the process, and say by which status it did; the next question starts another one."""
        process, self._process = self._process, None
        if process is None:
            return ""
        assert process.stdin is not None
        process.stdin.close()  # it ends when nothing more can be asked
        try:
            await asyncio.wait_for(process.wait(), _END_SECONDS)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        return f" (exit status {process.returncode})"

    async def _ask(self, question: bytes) -> bytes:
        if self._process is None or self._process.returncode is not None:
            await self._start()
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(question)
        await self._process.stdin.drain()
        return await self._answer(self._process)

    async def _start(self) -> None:
        """Started by the thread of the event loop: the process ends with the one that began it."""
        ref = self.model.model
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", MODULE, "--model", ref.uri, "--digest", ref.digest),
            *("--threads", str(self.threads)),
            *self._with_code(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment(self.threads),
            start_new_session=True,  # a Ctrl-C is for the server, which lets it end
        )
        try:
            await self._answer(self._process)  # it is loaded
        except StorageError:
            await self.end()
            raise

    def _with_code(self) -> tuple[str, ...]:
        if self.code is None:
            return ()
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="ml-assets-network-")
        file = Path(self._scratch.name) / "code.json"
        file.write_bytes(canonical_json(self.code))
        return ("--code", str(file))

    async def _answer(self, process: asyncio.subprocess.Process) -> bytes:
        assert process.stdout is not None
        failed, size = ANSWER.unpack(await process.stdout.readexactly(ANSWER.size))
        content = await process.stdout.readexactly(size)
        if failed:
            raise StorageError(content.decode(errors="replace"))
        return content


VERSION = 12
"""Characters of a model's digest that name its version to clients."""
_IDLE_SECONDS = 0.05
_LARGE = 16 << 10
T = TypeVar("T")


async def aside(size: int, work: Callable[[], T]) -> T:
    """Return what work comes to: much of it is done in a thread, and the event loop answers others.

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
    _closed: bool = False

    def __post_init__(self) -> None:
        self._computing = asyncio.create_task(self.batcher.run())

    @classmethod
    def of(
        cls,
        pipeline: Pipeline,
        release: LoadedRelease,
        code: NetworkCode | None,
        limits: Limits,
        metrics: Metrics,
        tell: Callable[[str], None],
    ) -> "ServedModel":
        """The server's view of a release that has not been tried yet.

        Args:
            code: of a team's own network.
        """
        spec, manifest = pipeline.spec, release.manifest

        def told(said: str) -> None:
            tell(f"{pipeline.name}: {said}")

        warm = WarmModel(release, spec.training.threads, told, code)
        batcher = Batcher(warm.predict, limits, metrics.batch.observe)
        encoder = Encoder(manifest, carried_columns(spec, manifest), flag_columns(spec))
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
        if self._closed:  # nobody computes any more
            raise MlAssetsError(
                f"Model {self.version} was replaced or taken out while the request came. Ask again."
            )
        self._asking += 1  # it is not ended between the encoding and the queue
        try:
            size = count * len(columns)
            rows = await aside(size, lambda: self.encoder.encode(columns, count))
            found = await self.batcher.ask(rows)
        finally:
            self._asking -= 1
        self.metrics.rows.labels(self.version).inc(count)
        return found

    async def replay(self, golden: GoldenVectors, seconds: float) -> None:
        """Return when the model says of its golden vectors what it has to say.

        Args:
            seconds: for its process to start, load the model and answer.

        Raises:
            StorageError: it says something else, or cannot be loaded.
            ModelHangs: it says nothing in time.
        """
        rows = Encoded(*encode_rows(golden.rows, self.release.manifest.preprocessing))
        try:
            async with asyncio.timeout(seconds):
                found = await self.batcher.ask(rows)
        except TimeoutError as error:
            raise ModelHangs(
                f"Model {self.version} was tried, and its process said nothing for {seconds:g} s:"
                " it hangs or is very slow. It is ended, and a running server tries the model"
                " again. See whether the model's disk and the GPU answer, and memory is free."
            ) from error
        golden.require(self.release.model.digest, found)

    async def close(self) -> None:
        """Answer whoever still waits, then end the process."""
        while self._asking or self.batcher.rows:
            await asyncio.sleep(_IDLE_SECONDS)
        self._closed = True
        self._computing.cancel()
        await self.warm.end()
