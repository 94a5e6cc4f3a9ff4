"""The ``train`` verb. Read it from top to bottom: set up, the loop, the best weights."""

import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.optim import Optimizer

from ml_assets.spec.canonical import canonical_json
from ml_assets.spec.program import Ref, TrainRequest, TrainResult
from ml_assets.spec.training import Task
from ml_assets.training.checkpoint import Best, Checkpoints, TrainerState, newest_whole, write_whole
from ml_assets.training.data import Batches, SplitArrays, lost_share, open_set
from ml_assets.training.events import EventWriter
from ml_assets.training.export import export
from ml_assets.training.losses import row_losses, row_weights
from ml_assets.training.models import Network, build, set_output_bias
from ml_assets.training.optimization import learning_rate, make_optimizer
from ml_assets.training.parallel import Ranks, join, leave, parallelize, sum_gradients, total
from ml_assets.training.stop import NonFinite, SavedAfterNotice
from ml_assets.training.validation import fixed_batch, validation_loss

_FIRST_ROWS = 5


def train(request: TrainRequest, events: EventWriter) -> None:
    """Train, or go on from the newest whole checkpoint, and write the result."""
    torch.set_num_threads(request.world.threads)
    torch.use_deterministic_algorithms(True)
    notice = Notice()
    folder, schema = open_set(request.data)
    ranks = join()
    try:
        trainer = Trainer(request, events, ranks, notice, SplitArrays(folder, schema, "train"))
        torch.manual_seed(request.training.seed)
        network = build(request.model, schema.preprocessing, schema.task, schema.classes)
        set_output_bias(network, schema.task, schema.label_rate)
        network = parallelize(network, request.training.strategy, ranks.world)
        optimizer = make_optimizer(network, request.training)
        held_out = SplitArrays(folder, schema, "validation")
        state, stopped = trainer.loop(network, optimizer, held_out, schema.task)
        best = state.best[0]
        trainer.checkpoints.load_model(best.name, network, optimizer)
        model = export(network, request, schema, best.step, ranks)
        if model is not None:
            trainer.finish(state, best, stopped, model)
    finally:
        leave()


class Notice:
    """SIGTERM raises a flag; it rides on the next step's sum, so that all ranks stop together."""

    def __init__(self) -> None:
        self.given = False
        signal.signal(signal.SIGTERM, self._give)

    def _give(self, *_: object) -> None:
        self.given = True


@dataclass
class Trainer:
    """One rank of one attempt."""

    request: TrainRequest
    events: EventWriter
    ranks: Ranks
    notice: Notice
    rows: SplitArrays

    def __post_init__(self) -> None:
        spec = self.request.training
        self.spec = spec
        self.batches = Batches(self.rows, spec.seed, spec.batch_size, spec.microbatches)
        self.steps = self.batches.steps_per_epoch * spec.epochs
        self.checkpoints = Checkpoints(self.request, self.ranks, self.events)
        self.began = time.monotonic()

    def loop(
        self, network: Network, optimizer: Optimizer, held_out: SplitArrays, task: Task
    ) -> tuple[TrainerState, str]:
        """Steps until the last one, or until patience ends."""
        state = self._resume(network, optimizer)
        seen, since = 0.0, time.monotonic()
        losses: list[float] = []
        while state.step < self.steps:
            if state.evaluations_without_better >= self.spec.patience:
                self.checkpoints.close()
                return state, "patience"
            step = state.step
            loss, norm, rows, stop = self.step(network, optimizer, step, task)
            losses.append(loss)
            seen += rows
            state = state.model_copy(update={"step": step + 1})
            last = state.step == self.steps
            if state.step % self.spec.evaluate_every == 0 or last or stop:
                speed = seen / max(time.monotonic() - since, 1e-9)
                metrics = {
                    "train_loss": sum(losses) / len(losses),
                    "validation_loss": validation_loss(network, held_out, self.ranks, task),
                    "learning_rate": learning_rate(self.spec, step, self.steps),
                    "grad_norm": norm,
                    "rows_per_second": speed,
                    "epoch": state.step / self.batches.steps_per_epoch,
                }
                state = self._judged(state, metrics["validation_loss"], stop=stop)
                self._tell(state, metrics)
                self.events.fixed_batch(state.step, *fixed_batch(network, held_out, task))
                self.checkpoints.save(network, optimizer, state, metrics)
                seen, since, losses = 0.0, time.monotonic(), []
            if stop:
                self.checkpoints.close()
                raise SavedAfterNotice(f"a notice came: saved at step {state.step}", state.step)
        self.checkpoints.close()
        return state, "epochs"

    def step(
        self, network: Network, optimizer: Optimizer, step: int, task: Task
    ) -> tuple[float, float, float, bool]:
        """One global step: (mean loss, gradient norm, rows, whether a notice came)."""
        rows, masks, counted = self.batches.share(step, self.ranks.rank, self.ranks.world)
        logits = network(rows.numeric, rows.categorical, masks)
        weights = row_weights(rows.label, task, self.spec.positive_weight)
        weights = weights if counted else torch.zeros_like(weights)
        loss = (row_losses(logits, rows.label, task) * weights).sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        sum_gradients(network, self.spec.strategy, self.ranks.world)
        sums = [
            float(loss.detach()),
            float(weights.sum()),
            float(counted),
            float(self.notice.given),
        ]
        loss_sum, weight_sum, count, notices = total(sums)
        norm = self._scale_and_clip(network, weight_sum)
        mean = loss_sum / weight_sum
        if not (torch.isfinite(torch.tensor(mean)) and torch.isfinite(torch.tensor(norm))):
            raise NonFinite(
                f"loss {mean} and gradient norm {norm} at step {step}: nothing was updated. Lower"
                " training.learning_rate or training.clip_norm, or look for broken feature values.",
                step,
            )
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(self.spec, step, self.steps)
        optimizer.step()
        return mean, norm, count, notices > 0

    def finish(self, state: TrainerState, best: Best, stopped: str, model: Ref) -> None:
        """Write the result, whole; then say so."""
        result = TrainResult(
            session=self.request.session,
            attempt=self.request.attempt,
            step=state.step,
            best_step=best.step,
            stopped=stopped,  # pyright: ignore[reportArgumentType]  one of the two the loop returns
            model=model,
            metrics={"validation_loss": best.validation_loss},
            seconds=time.monotonic() - self.began,
        )
        write_whole(Path(self.request.output.result), canonical_json(result))
        self.events.finished(result)

    def _resume(self, network: Network, optimizer: Optimizer) -> TrainerState:
        lost = lost_share(self.spec.microbatches, self.ranks.world)
        if lost:
            self.events.warning(
                f"{self.ranks.world} processes do not divide {self.spec.microbatches} microbatches:"
                f" {lost:.0%} of their time is spent waiting"
            )
        if self.request.resume is None:
            self.events.first_rows(self.batches.first(_FIRST_ROWS))
            return TrainerState()
        ref = newest_whole(self.checkpoints.folder, self.events)
        if ref is None:
            return TrainerState()
        state = self.checkpoints.load(ref, network, optimizer)
        self.events.progress(
            state.step, self.steps, f"resumed at step {state.step} of {self.steps}"
        )
        return state

    def _judged(self, state: TrainerState, loss: float, *, stop: bool) -> TrainerState:
        """A notice's evaluation is off the schedule: it must not change when training stops."""
        off_schedule = stop and state.step % self.spec.evaluate_every and state.step < self.steps
        if off_schedule:
            return state
        better = not state.best or loss < state.best[0].validation_loss
        entry = Best(step=state.step, validation_loss=loss, name=self.checkpoints.name(state.step))
        best = tuple(sorted((*state.best, entry), key=lambda b: (b.validation_loss, b.step)))
        return state.model_copy(
            update={
                "best": best[: self.spec.keep_best],
                "evaluations_without_better": 0 if better else state.evaluations_without_better + 1,
            }
        )

    def _scale_and_clip(self, network: Network, weight_sum: float) -> float:
        """Gradients become means over the global weight; returns their norm before clipping."""
        parameters = [p for p in network.parameters() if p.grad is not None]
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad.div_(weight_sum)
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.spec.clip_norm)
        return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)  # pyright: ignore[reportAttributeAccessIssue]  a DTensor

    def _tell(self, state: TrainerState, metrics: dict[str, float]) -> None:
        self.events.metrics(state.step, metrics)
        self.events.progress(
            state.step,
            self.steps,
            f"step {state.step} of {self.steps}: train loss {metrics['train_loss']:.4f},"
            f" validation {metrics['validation_loss']:.4f},"
            f" {metrics['rows_per_second']:,.0f} rows/s",
        )
