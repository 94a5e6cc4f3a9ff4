"""A small training set, and the program started as it is everywhere: a process with a request."""

import hashlib
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from pydantic import TypeAdapter

from ml_assets.spec.base import canonical_json
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.network_code import NetworkCode
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training import ModelSpec, TabM, TrainingSpec
from ml_assets.spec.training_program import (
    Ref,
    ScoreOutput,
    ScoreRequest,
    TrainOutput,
    TrainRequest,
    TrainResult,
    World,
)
from ml_assets.spec.training_program.events import Checkpoint, Event, Metrics
from ml_assets.spec.training_program.start import TORCHRUN
from ml_assets.training import train as program
from ml_assets.training.events import EventWriter
from ml_assets_tests.worlds.shards import write_shards

FEATURES = FeaturesSpec(
    function="features.py:build",
    key=("k",),
    decision_at="at",
    numeric=("x", "z"),
    categorical=("c",),
)
LABEL = LabelSpec(column="y", task="binary")
MODEL = TabM(family="tabm", width=16, depth=2, members=4)
SPEC = TrainingSpec(
    epochs=4,
    batch_size=96,
    microbatches=12,
    learning_rate=0.01,
    evaluate_every=5,
    patience=100,
)
EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def frame(rows: int, first: int, scale: float = 1.0) -> pl.LazyFrame:
    draw = np.random.default_rng(first)
    x, c = draw.normal(size=rows), draw.choice(["a", "b", "c"], rows)
    y = draw.random(rows) < 1 / (1 + np.exp(-(2 * x + (c == "a"))))
    z = pl.Series(np.where(draw.random(rows) < 0.1, np.nan, x * scale)).fill_nan(None)
    at = [datetime(2024, 1, 1, tzinfo=UTC)] * rows
    return pl.LazyFrame({"k": range(first, first + rows), "at": at, "x": x, "z": z, "c": c, "y": y})


@dataclass(frozen=True)
class Attempt:
    """One attempt of a session: its folder and how it is run."""

    folder: Path
    request: TrainRequest

    def command(self) -> list[str]:
        request = self.folder / f"request-{self.request.attempt}.json"
        request.write_bytes(canonical_json(self.request))
        procs = self.request.world.procs
        torchrun = [*TORCHRUN, "--standalone", f"--nproc-per-node={procs}"]
        torchrun.append(f"--log-dir={self.folder / 'ranks'}")  # else it makes one in /tmp
        program = ["-m", "ml_assets.training", "train", "--request", str(request)]
        return [sys.executable, *(torchrun if procs > 1 else []), *program]

    def start(self) -> subprocess.Popen[bytes]:
        return self.started(self.command())

    @staticmethod
    def started(command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_for(self, step: int) -> None:
        """Until a checkpoint of this step or a later one is told of."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if any(isinstance(e, Checkpoint) and e.step >= step for e in self.events()):
                return
            time.sleep(0.005)
        raise AssertionError(f"no checkpoint at step {step}")

    def kill_after(self, step: int) -> None:
        """Run until there is a checkpoint of this step, then end every rank without a word."""
        process = self.start()
        self.wait_for(step)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def run(self) -> int:
        return self.start().wait(120)

    def run_here(self) -> TrainResult:
        """The whole training of one rank, in this process: no other imports torch anew."""
        request = self.request
        before, threads = signal.getsignal(signal.SIGTERM), torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            program.train(request, EventWriter(Path(request.output.events), request.session, 1, 0))
        finally:
            signal.signal(signal.SIGTERM, before)
            torch.set_num_threads(threads)
        return self.result()

    def run_within(self, memory: int) -> int:
        """Run with so many bytes of data at most: the system refuses more, and kills nobody."""

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))

        return subprocess.run(
            self.command(),
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            timeout=120,
            check=False,
            preexec_fn=limit,
        ).returncode

    def score_request(
        self, folder: Path, data: Ref | None = None, code: NetworkCode | None = None
    ) -> ScoreRequest:
        """Asks for predictions on the validation split, ``p.npy`` in the folder."""
        return ScoreRequest(
            session="score",
            attempt=1,
            model=self.result().model,
            data=data or self.request.data,
            split="validation",
            code=code,
            output=ScoreOutput(
                predictions=str(folder / "p.npy"),
                events=str(folder / "events.jsonl"),
                result=str(folder / "result.json"),
            ),
            world=World(),
        )

    def events(self) -> list[Event]:
        file = Path(self.request.output.events)
        files = sorted(file.parent.glob(f"{file.stem}*")) if file.parent.is_dir() else []
        lines = [line for f in files for line in f.read_bytes().splitlines(keepends=True)]
        return [EVENT.validate_json(line) for line in lines if line.endswith(b"\n")]

    def validation_losses(self) -> dict[int, float]:
        found = [event for event in self.events() if isinstance(event, Metrics)]
        judged = [event for event in found if "validation_loss" in event.metrics]
        return {event.step: event.metrics["validation_loss"] for event in judged}

    def result(self) -> TrainResult:
        return TrainResult.model_validate_json(Path(self.request.output.result).read_bytes())

    def weights(self) -> str:
        (file,) = Path(self.request.output.model).glob("weights.*")
        return hashlib.sha256(file.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Sessions:
    """Makes attempts on one training set."""

    root: Path
    data: Ref

    def attempt(
        self,
        name: str,
        *,
        number: int = 1,
        procs: int = 2,
        spec: TrainingSpec = SPEC,
        model: ModelSpec = MODEL,
        resume: Ref | None = None,
        data: Ref | None = None,
        init: Ref | None = None,
        code: NetworkCode | None = None,
    ) -> Attempt:
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        output = TrainOutput(
            checkpoints=str(folder / "checkpoints"),
            model=str(folder / "model"),
            events=str(folder / f"events-{number}.jsonl"),
            result=str(folder / f"result-{number}.json"),
        )
        request = TrainRequest(
            session="session",
            attempt=number,
            model=model,
            training=spec,
            data=data or self.data,
            init=init,
            code=code,
            resume=resume,
            output=output,
            world=World(procs=procs),
        )
        return Attempt(folder, request)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Ref:
    splits = {"train": frame(1000, 0), "validation": frame(300, 2000), "holdout": frame(300, 3000)}
    return write_shards(splits, FEATURES, LABEL, tmp_path_factory.mktemp("shards"))  # pyright: ignore[reportArgumentType]


RENT = 900.0


def regression_set(folder: Path) -> Ref:
    """The label is 900, and 50 more for each unit of x: what a flat is let for."""
    paid = (RENT + 50 * pl.col("x")).alias("y")
    splits = {
        name: frame(rows, first).with_columns(paid)
        for name, rows, first in [("train", 1000, 0), ("validation", 300, 2000), ("holdout", 9, 1)]
    }
    label = LabelSpec(column="y", task="regression")
    return write_shards(splits, FEATURES, label, folder)  # pyright: ignore[reportArgumentType]


def ranking_set(folder: Path) -> Ref:
    """Queries of five rows; the grade rises with x, and some queries have no relevant row."""
    grade = pl.col("x").gt(0.5).cast(pl.Int64) + pl.col("x").gt(1.5).cast(pl.Int64)
    columns = [grade.alias("y"), (pl.col("k") // 5).alias("q")]
    splits = {
        name: frame(rows, first).with_columns(columns)
        for name, rows, first in [("train", 4000, 0), ("validation", 500, 5000), ("holdout", 5, 0)]
    }
    label = LabelSpec(column="y", task="ranking", query="q")
    return write_shards(splits, FEATURES, label, folder)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def sessions(tmp_path: Path, data: Ref) -> Sessions:
    return Sessions(tmp_path, data)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory, data: Ref) -> Attempt:
    """A training on two processes, with nothing in its way."""
    attempt = Sessions(tmp_path_factory.mktemp("whole"), data).attempt("whole")
    assert attempt.run() == 0
    return attempt
