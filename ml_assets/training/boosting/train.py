"""The ``train`` verb for boosted trees: a step is a round, a checkpoint is a file of trees."""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path

import numpy as np

from ml_assets.errors import StorageError
from ml_assets.spec.training import Boosted
from ml_assets.spec.training_program import ShardSchema, TrainRequest
from ml_assets.store.objects import write_whole
from ml_assets.store.retries import persist
from ml_assets.training import calibration
from ml_assets.training.boosting.engine import Engine
from ml_assets.training.boosting.engines import engine_of
from ml_assets.training.checkpoints.whole_checkpoints import (
    CheckpointClock,
    CheckpointFiles,
    Written,
    read_state,
)
from ml_assets.training.events import FIRST_ROWS, EventWriter
from ml_assets.training.model_folder import write_model
from ml_assets.training.peers import HeartbeatWriter
from ml_assets.training.rows.arrays import SplitArrays, open_set
from ml_assets.training.stop import NonFinite, Notice, NotSaved, SavedAfterNotice, may_pass
from ml_assets.training.telemetry import memory_peak_mb, milliseconds_since, pace, progress_line
from ml_assets.training.trainer_state import Best, StoppedBy, TrainerState, finish

_LONGEST_ROUND = 300.0
"""Seconds; the launcher takes ten times that for a standstill."""


def train(request: TrainRequest, events: EventWriter) -> None:
    """Grow trees, or go on from the newest whole checkpoint, and write the result."""
    assert isinstance(request.model, Boosted)
    engine = engine_of(request.model)
    engine.require()
    began, notice = time.monotonic(), Notice()
    folder, schema = open_set(request.data, request.splits)
    grower = Grower(request, request.model, engine, events, notice)
    stopped = grower.grow(folder, schema)
    best, chosen = grower.best()
    spec, held_out = request.training, SplitArrays(folder, schema, "validation")
    expected, threads = calibration.expected(spec, schema.classes), request.world.threads
    calibrate = calibration.Calibrator(spec, held_out, schema.classes, expected, events)
    model = write_model(
        request,
        schema,
        best.step,
        engine.weights,
        lambda file: shutil.copyfile(chosen / engine.trees, file),
        lambda draft, made: calibrate(lambda: engine.load_predictor(draft, made, threads)),
    )
    grower.files.store.release(best.name)
    state = grower.state.model_copy(update={"best": (best,)})
    finish(request, events, state, stopped, model, time.monotonic() - began)


@dataclass(eq=False)
class Grower:
    """One attempt; the engine calls it after each round."""

    request: TrainRequest
    model: Boosted
    engine: Engine
    events: EventWriter
    notice: Notice

    def __post_init__(self) -> None:
        self.state = TrainerState()
        rounds = min(self.model.rounds, self.request.steps or self.model.rounds)
        self.model = self.model.model_copy(update={"rounds": rounds})
        self.spec = self.request.training
        self.files = CheckpointFiles(self.request, self.events, world=1)
        self.clock = CheckpointClock(self.spec.checkpoint_minutes)
        self.unsaved: NotSaved | None = None
        self.last_save: Callable[[], NotSaved | None] = lambda: None
        self.heart = HeartbeatWriter(self.request, 0, _LONGEST_ROUND)

    def grow(self, folder: Path, schema: ShardSchema) -> StoppedBy:
        """Rounds until the last one, or until patience ends."""
        trees = self._resume()
        if self.state.step < self.model.rounds and not self._lost_patience:
            if trees is None:
                whole = SplitArrays(folder, schema, "train")
                self.events.first_rows(whole.take(np.arange(min(FIRST_ROWS, len(whole)))))
            self.speed = Speed(sum(s.rows for s in schema.splits["train"]), self.state.step)
            done, threads = self.state.step, self.request.world.threads
            self.engine.grow(
                self.model, self.spec, folder, schema, done, trees, threads, self.after_round
            )
        if self.unsaved is not None:
            raise self.unsaved
        return "rounds" if self.state.step == self.model.rounds else "patience"

    def best(self) -> tuple[Best, Path]:
        """The best checkpoint that is whole, and its files."""
        held = self.files.first_whole(self.files.best_first(), "next best one")
        if held is None:
            raise StorageError(f"{self.files.store.uri} has no whole checkpoint to choose.")
        return Best.of(held.found), held.folder

    def after_round(
        self, rounds: int, judged: Callable[[], Mapping[str, float]], trees: Callable[[], bytes]
    ) -> bool:
        """Judge a round, save it, stop after it, each where it is due; see ``AfterRound``."""
        self.state = self.state.model_copy(update={"step": rounds})
        self.heart.step = self.state.step
        self.heart.beat()
        scheduled = self._evaluation_is_due
        if scheduled or self.notice.given:
            metrics = self._metrics(judged())
            if scheduled:  # a notice's evaluation must not change when training stops
                name = self.files.name(self.state.step)
                loss = metrics["validation_loss"]
                self.state = self.state.judged(loss, name, self.spec.keep_best)
            self._report(metrics)
            self._save(trees(), metrics)
        elif self.clock.due or self._checkpoint_is_due:
            self._save(trees(), {})
        if self.notice.given:
            if self.unsaved is not None:
                raise self.unsaved
            step = self.state.step
            raise SavedAfterNotice(f"a stop notice came: saved at round {step}", step)
        return self._lost_patience

    @property
    def _lost_patience(self) -> bool:
        return self.state.evaluations_without_better >= self.spec.patience

    @property
    def _checkpoint_is_due(self) -> bool:
        every = self.spec.checkpoint_every
        return every is not None and self.state.step % every == 0

    @property
    def _evaluation_is_due(self) -> bool:
        step = self.state.step
        return step % self.spec.evaluate_every == 0 or step == self.model.rounds

    def _resume(self) -> Path | None:
        """The trees of the newest whole checkpoint, its state taken up; None: from nothing."""
        held = self.files.first_whole(self.files.claim(), "checkpoint before it")
        if held is None:
            return None
        found, folder = held
        self.files.parent = found.name
        self.state = read_state(folder)
        step, rounds = self.state.step, self.model.rounds
        self.events.progress(step, rounds, f"resumed at round {step} of {rounds}")
        return folder / self.engine.trees

    def _metrics(self, found: Mapping[str, float]) -> dict[str, float]:
        metrics = {
            **found,
            "learning_rate": self.model.learning_rate,
            **self.speed.at(self.state.step),
            "memory_peak_mb": memory_peak_mb(),
        }
        if not all(isfinite(value) for value in metrics.values()):
            raise NonFinite(
                f"round {self.state.step} was judged {dict(found)}: lower"
                " model.learning_rate, or look for broken labels",
                self.state.step,
            )
        return metrics

    def _report(self, metrics: dict[str, float]) -> None:
        step, rounds = self.state.step, self.model.rounds
        self.events.metrics(step, metrics)
        self.events.progress(step, rounds, progress_line("round", step, rounds, metrics))

    def _save(self, trees: bytes, metrics: dict[str, float]) -> None:
        """Save; what failed before and the model would be made from is tried again first.

        The last one is tried until the store answers.
        """
        last = self.notice.given or self._lost_patience or self.state.step == self.model.rounds
        if self.unsaved is not None and self.files.is_needed(self.unsaved, self.state):
            self._save_again()
        self.last_save = partial(self._tried, self.state, trees, metrics)
        self.unsaved = self.last_save()
        if last and may_pass(self.unsaved):
            self._save_again()
        self.clock.saved()

    def _save_again(self) -> None:
        def saved() -> None:
            self.unsaved = self.last_save()
            if self.unsaved is not None:
                raise self.unsaved

        persist(saved, passes=may_pass)

    def _tried(
        self, state: TrainerState, trees: bytes, metrics: dict[str, float]
    ) -> NotSaved | None:
        began, step = time.perf_counter(), state.step
        try:
            write_whole(self.files.draft(step) / self.engine.trees, trees)
            written = Written(self.files.put(step, [self.engine.trees]))
            took = {"checkpoint_duration_ms": milliseconds_since(began)}
            self.files.seal(state, {**metrics, **took}, written)
        except (OSError, StorageError) as error:
            return self.files.not_saved(step, error, len(trees))
        return None


class Speed:
    """Rounds and the rows that went through them, by the second since it was asked before."""

    def __init__(self, rows: int, step: int) -> None:
        self._rows, self._step, self._since = rows, step, time.perf_counter()

    def at(self, step: int) -> dict[str, float]:
        now, rounds = time.perf_counter(), step - self._step
        found = pace(self._rows * rounds, rounds, now - self._since)
        self._step, self._since = step, now
        return found
