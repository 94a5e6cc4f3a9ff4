"""The ``train`` verb. Read it from top to bottom: set up, the loop, the best weights."""

import time
from dataclasses import dataclass, field

import torch

from ml_assets.spec.program import Calibration, TrainRequest
from ml_assets.training import calibration
from ml_assets.training.assembly import assemble, first_values
from ml_assets.training.batches import lost_share
from ml_assets.training.checkpoint import Checkpoints
from ml_assets.training.checkpoint_files import CheckpointFiles, TrainerState, newest_whole
from ml_assets.training.clock import CheckpointClock
from ml_assets.training.data import SplitArrays, open_set
from ml_assets.training.diagnosis import Evaluated
from ml_assets.training.events import FIRST_ROWS, EventWriter
from ml_assets.training.export import export
from ml_assets.training.optimization import learning_rate
from ml_assets.training.parallel import Ranks, join, leave
from ml_assets.training.result import StoppedBy, finish
from ml_assets.training.step import Step, Stepper, Word
from ml_assets.training.stop import Notice, SavedAfterNotice
from ml_assets.training.validation import fixed_batch, validation_loss


def train(request: TrainRequest, events: EventWriter) -> None:
    """Train, or go on from the newest whole checkpoint, and write the result."""
    began = time.monotonic()
    spec = request.training
    torch.set_num_threads(request.world.threads)
    torch.use_deterministic_algorithms(True)
    notice = Notice()
    folder, schema = open_set(request.data)
    ranks = join()
    try:
        network, told = first_values(request, schema)
        stepper = assemble(request, network, folder, schema, ranks)
        expected = calibration.expected(spec, schema.classes, stepper.batches.again)
        held_out = SplitArrays(folder, schema, "validation")
        trainer = Trainer(request, events, ranks, notice, stepper, held_out, expected)
        if told and request.resume is None:
            events.progress(0, stepper.steps, told)
        state, stopped = trainer.loop()
        best = state.best[0]
        trainer.checkpoints.load_model(best.name, stepper.network, stepper.optimizer)
        calibrate = calibration.Calibrator(spec, held_out, schema.classes, expected, events)
        model = export(stepper.network, request, schema, best.step, ranks, calibrate)
        if model is not None:
            finish(request, events, state, stopped, model, time.monotonic() - began)
    finally:
        leave()


@dataclass
class Window:
    """The steps since the last evaluation."""

    losses: list[float] = field(default_factory=list)
    rows: float = 0.0
    since: float = field(default_factory=time.monotonic)

    def take(self, done: Step) -> None:
        self.losses.append(done.loss)
        self.rows += done.rows

    @property
    def loss(self) -> float:
        return sum(self.losses) / len(self.losses)

    def waits(self, seconds: float) -> dict[str, float]:
        """Of so many seconds that the steps waited for rows."""
        return {
            "data_wait_share": seconds / max(time.monotonic() - self.since, 1e-9),
            "data_loading_latency_ms": 1000 * seconds / len(self.losses),
        }

    @property
    def rows_per_second(self) -> float:
        return self.rows / max(time.monotonic() - self.since, 1e-9)


@dataclass
class Trainer:
    """One rank of one attempt."""

    request: TrainRequest
    events: EventWriter
    ranks: Ranks
    notice: Notice
    stepper: Stepper
    held_out: SplitArrays
    expected: Calibration | None
    """What training is known to do to the probabilities."""

    def __post_init__(self) -> None:
        self.spec = self.request.training
        self.steps = self.stepper.steps
        self.files = CheckpointFiles(self.request, self.events, self.ranks.world)
        self.checkpoints = Checkpoints(self.files, self.ranks)
        self.clock = CheckpointClock(self.spec.checkpoint_minutes)

    def loop(self) -> tuple[TrainerState, StoppedBy]:
        """Steps until the last one, or until patience ends."""
        state, window = self._resume(), Window()
        while state.step < self.steps:
            if state.evaluations_without_better >= self.spec.patience:
                self.checkpoints.close()
                return state, "patience"
            done = self.stepper.take(state.step, state.loss_scale, self._word)
            window.take(done)
            state = state.model_copy(update={"step": state.step + 1, "loss_scale": done.loss_scale})
            if self._evaluation_is_due(state.step) or done.notice:
                state = self._evaluate(state, done, window)
                window = Window()
            elif done.checkpoint_due:
                self._save(state, {"train_loss": done.loss})
            if done.notice:
                self.checkpoints.close()
                raise SavedAfterNotice(f"a notice came: saved at step {state.step}", state.step)
        self.checkpoints.close()
        return state, "epochs"

    def _word(self) -> Word:
        return Word(self.notice.given, self.clock.due)

    def _resume(self) -> TrainerState:
        lost = lost_share(self.spec.microbatches, self.ranks.world)
        if lost:
            self.events.warning(
                f"{self.ranks.world} processes do not divide {self.spec.microbatches} microbatches:"
                f" {lost:.0%} of their time is spent waiting"
            )
        if self.request.resume is None:
            self.events.first_rows(self.stepper.batches.first(FIRST_ROWS))
            return TrainerState()
        ref = newest_whole(self.files.folder, self.events)
        if ref is None:
            return TrainerState()
        state = self.checkpoints.load(ref, self.stepper.network, self.stepper.optimizer)
        self.events.progress(
            state.step, self.steps, f"resumed at step {state.step} of {self.steps}"
        )
        return state

    def _evaluation_is_due(self, step: int) -> bool:
        return step % self.spec.evaluate_every == 0 or step == self.steps

    def _evaluate(self, state: TrainerState, done: Step, window: Window) -> TrainerState:
        """Judge the weights on the validation split, tell, and save."""
        forward, task = self.stepper.forward, self.stepper.task
        loss = validation_loss(forward, self.held_out, self.ranks, task, self.expected)
        metrics = {
            "train_loss": window.loss,
            "validation_loss": loss,
            "learning_rate": learning_rate(self.spec, state.step - 1, self.steps),
            "grad_norm": done.grad_norm,
            "rows_per_second": window.rows_per_second,
            **window.waits(self.stepper.waited()),
            "epoch": state.step / self.stepper.batches.steps_per_epoch,
        }
        if done.loss_scale is not None:
            metrics["loss_scale"] = done.loss_scale.scale
            metrics["skipped_steps"] = float(done.loss_scale.skipped)
        # a notice's evaluation is off the schedule: it must not change when training stops
        if self._evaluation_is_due(state.step):
            state = state.judged(loss, self.files.name(state.step), self.spec.keep_best)
            at = Evaluated.of(state.step, window.losses[0], metrics)
            state = state.model_copy(update={"history": (*state.history, at)})
        self.stepper.compare_branches = True
        self._tell(state.step, metrics)
        self.events.fixed_batch(state.step, *fixed_batch(forward, self.held_out, self.ranks, task))
        self._save(state, metrics)
        return state

    def _save(self, state: TrainerState, metrics: dict[str, float]) -> None:
        self.checkpoints.save(self.stepper.network, self.stepper.optimizer, state, metrics)
        self.clock.saved()

    def _tell(self, step: int, metrics: dict[str, float]) -> None:
        self.events.metrics(step, metrics)
        self.events.progress(
            step,
            self.steps,
            f"step {step} of {self.steps}: train loss {metrics['train_loss']:.4f},"
            f" validation {metrics['validation_loss']:.4f},"
            f" {metrics['rows_per_second']:,.0f} rows/s",
        )
