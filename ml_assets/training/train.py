"""The ``train`` verb. Read it from top to bottom: set up, the loop, the best weights."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ml_assets.errors import counted
from ml_assets.spec.parallel import idle_share
from ml_assets.spec.training import Task
from ml_assets.spec.training_program import Calibration, ShardSchema, TrainRequest
from ml_assets.spec.training_program.events import DrawnRows
from ml_assets.training import calibration
from ml_assets.training.calibration import calibrated
from ml_assets.training.checkpoints.save import Checkpoints
from ml_assets.training.checkpoints.whole_checkpoints import CheckpointClock, CheckpointFiles
from ml_assets.training.diagnosis import Evaluated
from ml_assets.training.distributed.ranks import Ranks, join, leave, total
from ml_assets.training.distributed.strategies import powersgd_of
from ml_assets.training.events import FIRST_ROWS, EventWriter
from ml_assets.training.hang import Watch
from ml_assets.training.losses import prediction_losses, row_weights
from ml_assets.training.model_folder import open_model
from ml_assets.training.models.families import predictions
from ml_assets.training.optimization import learning_rate
from ml_assets.training.peers import generation
from ml_assets.training.rows.arrays import SplitArrays, open_set
from ml_assets.training.rows.batches import tensors
from ml_assets.training.rows.tokens import split_arrays
from ml_assets.training.step import Step, Stepper, StopFlags, assemble, initial_network
from ml_assets.training.step_meter import Meter
from ml_assets.training.stop import BadData, NonFinite, Notice, SavedAfterNotice
from ml_assets.training.telemetry import Tracer, progress_line
from ml_assets.training.trainer_state import Best, StoppedBy, TrainerState, finish
from ml_assets.training.validation_metrics import ValidationMetrics
from ml_assets.training.weights import export, gathered, held_tensors


def train(request: TrainRequest, events: EventWriter) -> None:
    """Train, or go on from the newest whole checkpoint, and write the result."""
    began = time.monotonic()
    spec = request.training
    torch.set_num_threads(request.world.threads)
    torch.set_deterministic_debug_mode("error")
    notice = Notice()
    ranks = join()
    watch = Watch(request, ranks)
    try:
        folder, schema = open_set(request.data, request.splits)
        network, begun_with = initial_network(request, schema)
        stepper = assemble(request, network, folder, schema, ranks)
        expected = calibration.expected(spec, schema.classes, stepper.batches.oversampled)
        held_out = split_arrays(folder, schema, "validation")
        trainer = Trainer(request, events, ranks, notice, stepper, held_out, expected, watch)
        with trainer.checkpoints.finish_save_on_error(), watch.explaining():
            state, stopped = trainer.loop(begun_with)
            watch.quiet()
            trainer.tracer.close(state.step)
            best, members = trainer.best_weights()
        state = state.model_copy(update={"best": (best,)})
        calibrate = calibration.Calibrator(spec, held_out, schema.classes, expected, events)
        if ranks.rank == 0:
            members += members_of(request, schema)
        model = export(members, request, schema, best.step, ranks, calibrate)
        if model is not None:
            finish(request, events, state, stopped, model, time.monotonic() - began)
    except BaseException as error:  # a failed save is no Exception in torch
        watch.explain(error)
        raise
    finally:
        leave()


def members_of(request: TrainRequest, schema: ShardSchema) -> list[dict[str, torch.Tensor]]:
    """The weights of the models by other seeds that a request exports with its own.

    Raises:
        BadData: one is damaged, or of another network or other columns.
    """
    found: list[dict[str, torch.Tensor]] = []
    for ref in request.members:
        manifest = open_model(ref)
        code = request.code.digest if request.code else None
        same = (manifest.model, manifest.preprocessing, manifest.code, manifest.ensemble)
        if same != (request.model, schema.preprocessing, code, 1):
            raise BadData(
                f"The model {ref.uri} is of another network or other columns: it cannot be in one"
                " ensemble with this one."
            )
        found.append(held_tensors(Path(ref.uri), manifest))
    return found


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
    """Undoes what training is known to do to the probabilities."""
    watch: Watch

    def __post_init__(self) -> None:
        self.spec = self.request.training
        self.steps = self.stepper.steps
        self.files = CheckpointFiles(self.request, self.events, self.ranks.world)
        unsent = powersgd_of(self.stepper.forward)
        self.checkpoints = Checkpoints(self.files, self.ranks, self.watch.alive, unsent)
        self.clock = CheckpointClock(self.spec.checkpoint_minutes)
        self.meter = Meter(self.stepper.network, self.stepper.times, self.ranks.device)
        self.tracer = Tracer(self.spec.profile, self.ranks.rank, self.events)

    def loop(self, begun_with: str | None) -> tuple[TrainerState, StoppedBy]:
        """Steps until the last one, or until patience ends.

        Args:
            begun_with: what to tell of the weights that a new training begins with.
        """
        state = self._resume(begun_with)
        self.watch.begin(state.step)
        while state.step < self.steps:
            if state.evaluations_without_better >= self.spec.patience:
                self.checkpoints.close()
                return state, "patience"
            done = self._take(state)
            state = self._stepped(state, done)
            self.watch.step_taken(state.step)
            if self._evaluation_is_due(state.step):
                state = self._evaluate(state, done)
            elif done.notice or done.checkpoint_due or self._checkpoint_is_due(state.step):
                self._save(state, {"train_loss": done.loss})
            elif self.meter.report_is_due:
                self._report(state.step, {**self.meter.live(), **self._of_step(state.step, done)})
            if done.notice:
                self.checkpoints.close()
                said = f"a stop notice came: saved at step {state.step}"
                raise SavedAfterNotice(said, state.step)
        self.checkpoints.close()
        return state, "epochs"

    def best_weights(self) -> tuple[Best, list[dict[str, torch.Tensor]]]:
        """The best checkpoint, and on rank 0 the weights of each that the model has."""
        wanted = self.spec.chosen_checkpoints
        network, members, best = self.stepper.network, [], list[Best]()
        for one in self.checkpoints.load_bests(network, self.stepper.optimizer, wanted):
            found = gathered(network)
            if wanted > 1:  # what is loaded next goes into the same memory
                found = {name: tensor.clone() for name, tensor in found.items()}
            members.append(found)
            best.append(one)
        if len(best) < wanted:
            self.events.warning(
                f"training.ensemble asks for {counted(wanted, 'checkpoint')}, and {len(best)} were"
                f" judged: the model has {len(best)}. Lower training.evaluate_every."
            )
        return best[0], members

    def _take(self, state: TrainerState) -> Step:
        self.tracer.before(state.step)
        weigh = self._evaluation_is_due(state.step + 1)
        return self.meter.take(
            lambda: self.stepper.take(state.step, state.loss_scale, self._stop_flags), weigh
        )

    def _stepped(self, state: TrainerState, done: Step) -> TrainerState:
        """The state after a step; at the end of an epoch what was drawn is held to what was due."""
        step, each = state.step + 1, self.stepper.batches.steps_per_epoch
        drawn = state.drawn and state.drawn.plus(done.drawn)
        if step % each == 0:
            if drawn is not None:
                self._epoch_ended(step // each, drawn)
            drawn = DrawnRows()
        changed = {"step": step, "loss_scale": done.loss_scale, "drawn": drawn}
        return state.model_copy(update=changed)

    def _epoch_ended(self, epoch: int, drawn: DrawnRows) -> None:
        due = self.stepper.batches.rows_of_epoch(epoch - 1)
        if drawn != due:
            raise AssertionError(
                f"epoch {epoch} drew other rows than it was to draw, each once: {drawn} instead of"
                f" {due}. That is a fault of this program, and nothing of it was saved since the"
                " last checkpoint. Please report it with the spec."
            )
        self.events.epoch_ended(epoch, drawn)

    def _stop_flags(self) -> StopFlags:
        return StopFlags(self.notice.given, self.clock.due)

    def _resume(self, begun_with: str | None) -> TrainerState:
        lost = idle_share(self.spec.microbatches, self.stepper.lanes.world)
        if lost:
            self.events.warning(
                f"{self.stepper.lanes.world} processes do not divide"
                f" {counted(self.spec.microbatches, 'microbatch')}: {lost:.0%} of their time is"
                " spent waiting"
            )
        restart = generation()
        if restart:
            self.events.warning(
                f"A process was lost: all {self.ranks.world} were started again (restart {restart}"
                f" in attempt {self.request.attempt})."
            )
        state = self.checkpoints.resume(self.stepper.network, self.stepper.optimizer)
        if state is None:
            if begun_with:
                self.events.progress(0, self.steps, begun_with)
            self.events.first_rows(self.stepper.loader.first(FIRST_ROWS))
            return TrainerState(drawn=DrawnRows())
        self.events.progress(
            state.step, self.steps, f"resumed at step {state.step} of {self.steps}"
        )
        return state

    def _evaluation_is_due(self, step: int) -> bool:
        return step % self.spec.evaluate_every == 0 or step == self.steps

    def _checkpoint_is_due(self, step: int) -> bool:
        every = self.spec.checkpoint_every
        return every is not None and step % every == 0

    def _evaluate(self, state: TrainerState, done: Step) -> TrainerState:
        """Judge the weights on the validation split, tell, and save."""
        forward, task = self.stepper.forward, self.stepper.task
        alive, first_loss = self.watch.alive, self.meter.first_loss
        measured = {**self.meter.evaluated(), **self._of_step(state.step, done)}
        found = validate(forward, self.held_out, self.stepper.lanes, task, self.expected, alive)
        metrics = {**measured, **found}
        loss = found["validation_loss"]
        state = state.judged(loss, self.files.name(state.step), self.spec.keep_best)
        at = Evaluated.of(state.step, first_loss, metrics)
        state = state.model_copy(update={"history": (*state.history, at)})
        self.stepper.compare_branches = True
        self._report(state.step, metrics)
        if task != "language_model":  # the report shows how it goes on with texts
            fixed = fixed_batch(forward, self.held_out, self.ranks, task)
            self.events.fixed_batch(state.step, *fixed)
        self._save(state, metrics)
        return state

    def _save(self, state: TrainerState, metrics: dict[str, float]) -> None:
        self.checkpoints.save(self.stepper.network, self.stepper.optimizer, state, metrics)
        self.clock.saved()

    def _of_step(self, step: int, done: Step) -> dict[str, float]:
        return {
            "learning_rate": learning_rate(self.spec, step - 1, self.steps),
            "grad_norm": done.grad_norm,
            "epoch": step / self.stepper.batches.steps_per_epoch,
            **(done.loss_scale.metrics() if done.loss_scale else {}),
        }

    def _report(self, step: int, metrics: dict[str, float]) -> None:
        self.events.metrics(step, metrics)
        self.events.progress(step, self.steps, progress_line("step", step, self.steps, metrics))


_CHUNK = 1024
"""Rows whose activations stay in a core's cache."""
_FIXED_ROWS = 32


@torch.no_grad()
def validate(
    network: nn.Module,
    rows: SplitArrays,
    ranks: Ranks,
    task: Task,
    expected: Calibration | None,
    alive: Callable[[], None],
) -> dict[str, float]:
    """``validation_loss`` of the ensemble's mean prediction, and every metric of the task.

    Args:
        expected: undoes what weights, draws or a focal loss are known to do, so that the loss is
            that of the model as it is calibrated at the end; None: they did nothing.
        alive: called now and then: a long validation is no standstill.

    Raises:
        NonFinite: a prediction is no number.
    """
    network.eval()
    size = rows.units_for(_CHUNK)
    chunks = -(-rows.units // size)
    metrics = ValidationMetrics(task, rows.label_scale.std if rows.label_scale else 1.0)
    loss, count = 0.0, 0.0
    for number in range(ranks.rank, -(-chunks // ranks.world) * ranks.world, ranks.world):
        alive()
        mine = number < chunks
        start = number * size if mine else 0
        stop = min(start + size, rows.units) if mine else 1
        taken = tensors(rows.take_units(np.arange(start, stop)))
        there = taken.to(ranks.device)
        predicted = predictions(network(there.numeric, there.categorical, None), task).cpu()
        if expected is not None:
            predicted = torch.from_numpy(calibrated(predicted.numpy(), expected)).to(predicted)
        if mine:
            weights = row_weights(taken, task)
            loss += float((prediction_losses(predicted, taken, task) * weights).sum())
            count += float(weights.sum())
            starts = None if taken.starts is None else taken.starts.numpy()
            if torch.isfinite(predicted).all():  # else the loss says so, on every rank
                metrics.add(predicted.numpy(), taken.label.numpy(), starts)
    network.train()
    loss, count = total([loss, count])
    if not math.isfinite(loss):
        raise NonFinite(
            f"the validation loss is {loss}: for some row of the validation split the network"
            " predicts no number, or one that is far too large. Look in the network for a root, a"
            " logarithm or a division that training's own rows do not break, or lower"
            " training.learning_rate. Nothing of this evaluation was saved."
        )
    return {"validation_loss": loss / count, **metrics.found(total)}


@torch.no_grad()
def fixed_batch(
    network: nn.Module, rows: SplitArrays, ranks: Ranks, task: Task
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Labels [r] and predictions [r, outputs] of the same few rows at every call, by all ranks.

    The rows are spread evenly over the split; nothing random is drawn, so training is the same.
    """
    network.eval()
    few = min(_FIXED_ROWS, len(rows))
    places = np.linspace(0, len(rows) - 1, few).astype(np.int64)
    taken = tensors(rows.take(places)).to(ranks.device)
    predicted = predictions(network(taken.numeric, taken.categorical, None), task)
    network.train()
    return taken.label.cpu().numpy(), predicted.cpu().numpy()
