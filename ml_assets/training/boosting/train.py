"""The ``train`` verb for boosted trees: a step is a round, a checkpoint is a text of trees."""

import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ml_assets.errors import StorageError
from ml_assets.spec.program import ShardSchema, TrainRequest
from ml_assets.spec.training import LightGbm, TrainingSpec
from ml_assets.store.retries import persist
from ml_assets.training import calibration
from ml_assets.training.boosting.inputs import (
    categorical,
    draws,
    group_sizes,
    labels,
    matrix,
    names,
    parameters,
    row_weights,
)
from ml_assets.training.boosting.trees import load_predictor, require_lightgbm, trees_as_text
from ml_assets.training.checkpoints.files import (
    CheckpointClock,
    CheckpointFiles,
    Written,
    read_state,
)
from ml_assets.training.events import FIRST_ROWS, EventWriter
from ml_assets.training.model_folder import write_model
from ml_assets.training.recovery import HeartbeatWriter
from ml_assets.training.rows.arrays import SplitArrays, open_set
from ml_assets.training.stop import NonFinite, Notice, NotSaved, SavedAfterNotice, may_pass
from ml_assets.training.telemetry import memory_peak_mb, milliseconds_since, pace, progress_line
from ml_assets.training.trainer_state import Best, StoppedBy, TrainerState, finish

if TYPE_CHECKING:
    from lightgbm import Booster, Dataset
    from lightgbm.callback import CallbackEnv

TREES = "trees.txt"
WEIGHTS = "weights.txt"
_LONGEST_ROUND = 300.0
"""Seconds; the launcher takes ten times that for a standstill."""


def train(request: TrainRequest, events: EventWriter) -> None:
    """Grow trees, or go on from the newest whole checkpoint, and write the result."""
    require_lightgbm()
    began, notice = time.monotonic(), Notice()
    folder, schema = open_set(request.data)
    grower = Grower(request, events, notice)
    stopped = grower.grow(folder, schema)
    best, chosen = grower.best()
    spec, held_out = request.training, SplitArrays(folder, schema, "validation")
    expected = calibration.expected(spec, schema.classes)
    calibrate = calibration.Calibrator(spec, held_out, schema.classes, expected, events)
    model = write_model(
        request,
        schema,
        best.step,
        WEIGHTS,
        lambda file: shutil.copyfile(chosen / TREES, file),
        lambda draft, made: calibrate(lambda: load_predictor(draft, made, request.world.threads)),
    )
    grower.files.store.release(best.name)
    state = grower.state.model_copy(update={"best": (best,)})
    finish(request, events, state, stopped, model, time.monotonic() - began)


class Draws:
    """LightGBM calls it before each round: what the round draws is a function of its number."""

    before_iteration = True

    def __init__(self, model: LightGbm, seed: int) -> None:
        self._model, self._seed = model, seed

    def __call__(self, env: "CallbackEnv") -> None:
        booster = cast("Booster", env.model)
        booster.reset_parameter(draws(self._model, self._seed, env.iteration))


@dataclass(eq=False)
class Grower:
    """One attempt; LightGBM calls it after each round."""

    request: TrainRequest
    events: EventWriter
    notice: Notice

    def __post_init__(self) -> None:
        assert isinstance(self.request.model, LightGbm)
        self.state = TrainerState()
        rounds = min(self.request.model.rounds, self.request.steps or self.request.model.rounds)
        self.model = self.request.model.model_copy(update={"rounds": rounds})
        self.spec = self.request.training
        self.files = CheckpointFiles(self.request, self.events, world=1)
        self.clock = CheckpointClock(self.spec.checkpoint_minutes)
        self.unsaved: NotSaved | None = None
        self.heart = HeartbeatWriter(self.request, 0, _LONGEST_ROUND)

    def grow(self, folder: Path, schema: ShardSchema) -> StoppedBy:
        """Rounds until the last one, or until patience ends."""
        import lightgbm

        trees = self._resume()
        if self.state.step < self.model.rounds and not self._lost_patience:
            threads = self.request.world.threads
            chosen = parameters(self.model, self.spec, schema.task, schema.classes, threads)
            if trees is None:
                whole = SplitArrays(folder, schema, "train")
                self.events.first_rows(whole.take(np.arange(min(FIRST_ROWS, len(whole)))))
            rows, held_out = datasets(folder, schema, chosen, self.spec)
            before = draws(self.model, self.spec.seed, self.state.step - 1)
            self.speed = Speed(sum(s.rows for s in schema.splits["train"]), self.state.step)
            lightgbm.train(
                {**chosen, **before},
                rows,
                self.model.rounds - self.state.step,
                valid_sets=[rows, held_out],
                valid_names=["train", "validation"],
                init_model=trees,
                keep_training_booster=True,  # its trees were saved: not once more
                callbacks=[Draws(self.model, self.spec.seed), self],
            )
        if self.unsaved is not None:
            raise self.unsaved
        return "rounds" if self.state.step == self.model.rounds else "patience"

    def best(self) -> tuple[Best, Path]:
        """The best checkpoint that is whole, and its files."""
        held = self.files.first_whole(self.files.best_first(), "next best one")
        if held is None:
            raise StorageError(f"{self.files.store.uri} has no whole checkpoint to choose.")
        return Best.of(held[0]), held[1]

    def __call__(self, env: "CallbackEnv") -> None:
        """After a round: judge it, save it, stop after it, each where it is due."""
        self.state = self.state.model_copy(update={"step": env.iteration + 1})
        self.heart.step = self.state.step
        self.heart.beat()
        booster = cast("Booster", env.model)
        scheduled = self._evaluation_is_due
        if scheduled or self.notice.given:
            metrics = self._metrics(env)
            if scheduled:  # a notice's evaluation must not change when training stops
                name = self.files.name(self.state.step)
                loss = metrics["validation_loss"]
                self.state = self.state.judged(loss, name, self.spec.keep_best)
            self._report(metrics)
            self._save(booster, metrics)
        elif self.clock.due or self._checkpoint_is_due:
            self._save(booster, {})
        if self.notice.given:
            if self.unsaved is not None:
                raise self.unsaved
            step = self.state.step
            raise SavedAfterNotice(f"a notice came: saved at round {step}", step)
        if self._lost_patience:
            from lightgbm.callback import EarlyStopException

            raise EarlyStopException(env.iteration, env.evaluation_result_list or [])

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
        return folder / TREES

    def _metrics(self, env: "CallbackEnv") -> dict[str, float]:
        found = _losses(env)
        metrics = {
            "train_loss": found["train"],
            "validation_loss": found["validation"],
            "learning_rate": self.model.learning_rate,
            **self.speed.at(self.state.step),
            "memory_peak_mb": memory_peak_mb(),
        }
        if not all(isfinite(value) for value in metrics.values()):
            raise NonFinite(
                f"the losses of round {self.state.step} are {found}: lower model.learning_rate,"
                " or look for broken labels",
                self.state.step,
            )
        return metrics

    def _report(self, metrics: dict[str, float]) -> None:
        step, rounds = self.state.step, self.model.rounds
        self.events.metrics(step, metrics)
        self.events.progress(step, rounds, progress_line("round", step, rounds, metrics))

    def _save(self, booster: "Booster", metrics: dict[str, float]) -> None:
        """Save; the last one again and again where the store is away, until that answers."""
        last = self.notice.given or self._lost_patience or self.state.step == self.model.rounds

        def saved() -> None:
            self.unsaved = self._tried(booster, metrics)
            if last and self.unsaved is not None:
                raise self.unsaved

        with suppress(NotSaved):
            persist(saved, passes=may_pass)
        self.clock.saved()

    def _tried(self, booster: "Booster", metrics: dict[str, float]) -> NotSaved | None:
        began, step, text = time.perf_counter(), self.state.step, trees_as_text(booster).encode()
        try:
            (self.files.draft(step) / TREES).write_bytes(text)
            written = Written(self.files.put(step, [TREES]))
            took = {"checkpoint_duration_ms": milliseconds_since(began)}
            self.files.seal(self.state, {**metrics, **took}, written)
        except (OSError, StorageError) as error:
            return self.files.not_saved(step, error, len(text))
        return None


def _losses(env: "CallbackEnv") -> dict[str, float]:
    """Split -> its metric as something to lower: 1 - NDCG, as the evaluation counts it."""
    found: dict[str, float] = {}
    for split, _, value, higher_is_better, *_ in env.evaluation_result_list or ():
        found[str(split)] = 1 - float(value) if higher_is_better else float(value)
    return found


class Speed:
    """Rounds and the rows that went through them, by the second since it was asked before."""

    def __init__(self, rows: int, step: int) -> None:
        self._rows, self._step, self._since = rows, step, time.perf_counter()

    def at(self, step: int) -> dict[str, float]:
        now, rounds = time.perf_counter(), step - self._step
        found = pace(self._rows * rounds, rounds, now - self._since)
        self._step, self._since = step, now
        return found


def datasets(
    folder: Path, schema: ShardSchema, chosen: dict[str, Any], training: TrainingSpec
) -> tuple["Dataset", "Dataset"]:
    """The training and the validation split, cut into the same bins; weighed alike.

    So the validation loss is what training minimizes: it tells when to stop.
    """
    from lightgbm import Dataset

    train, validation = (
        SplitArrays(folder, schema, split).whole() for split in ("train", "validation")
    )
    columns, task = schema.preprocessing, schema.task
    rows = Dataset(
        matrix(train, columns),
        label=labels(train, task),
        weight=row_weights(train, task, training),
        group=group_sizes(train),
        feature_name=names(columns),
        categorical_feature=list(categorical(columns)),
        params=chosen,
    )
    held_out = rows.create_valid(
        matrix(validation, columns),
        labels(validation, task),
        weight=row_weights(validation, task, training),
        group=group_sizes(validation),
    )
    return rows, held_out
