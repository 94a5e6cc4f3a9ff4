"""The trainer's state besides model and optimizer, and its result.

The scale of fp16 losses is a pure function of which steps overflowed. Small gradients vanish in
fp16 and large ones overflow: the loss is multiplied by a scale that is halved when a gradient
overflows, and doubled after many steps without (Micikevicius et al., "Mixed Precision Training",
2018).
"""

from typing import Literal

from ml_assets.spec.base import Frozen
from ml_assets.spec.training_program import Ref, TrainRequest, TrainResult
from ml_assets.spec.training_program.events import DrawnRows
from ml_assets.store.checkpoint_store import (
    FoundCheckpoint,
)
from ml_assets.training.diagnosis import Evaluated, advise
from ml_assets.training.events import EventWriter

MOST_SKIPS = 24
"""Steps in a row without an update before training stops: the scale is then 2**-8."""
_GROW_AFTER = 2000
"""Steps without an overflow before the scale is tried at twice the size."""
_LARGEST = 2.0**24


class LossScale(Frozen):
    """The scale after some steps."""

    scale: float = 2.0**16
    steps_since_change: int = 0
    skipped: int = 0
    """Steps of the whole training that updated nothing."""
    skipped_in_a_row: int = 0

    def after(self, *, overflowed: bool) -> "LossScale":
        """The scale for the next step."""
        if overflowed:
            return LossScale(
                scale=self.scale / 2,
                skipped=self.skipped + 1,
                skipped_in_a_row=self.skipped_in_a_row + 1,
            )
        grown = self.steps_since_change + 1 >= _GROW_AFTER
        return LossScale(
            scale=min(self.scale * 2, _LARGEST) if grown else self.scale,
            steps_since_change=0 if grown else self.steps_since_change + 1,
            skipped=self.skipped,
        )

    def metrics(self) -> dict[str, float]:
        """The scale as metrics."""
        return {"loss_scale": self.scale, "skipped_steps": float(self.skipped)}


class Best(Frozen):
    """A checkpoint and the validation loss at it."""

    step: int
    validation_loss: float
    name: str

    @classmethod
    def of(cls, found: FoundCheckpoint) -> "Best":
        """Take it from a checkpoint that was judged."""
        loss = found.manifest.validation_loss
        assert loss is not None
        return cls(step=found.manifest.step, validation_loss=loss, name=found.name)


class TrainerState(Frozen):
    """Everything that training needs to go on besides the model and its optimizer."""

    step: int = 0
    best: tuple[Best, ...] = ()
    """The best ones so far, best first."""
    evaluations_without_better: int = 0
    loss_scale: LossScale | None = None
    """The scale of fp16; the other precisions have none."""
    judged_at: int | None = None
    """Step of the last evaluation; a checkpoint between two, or after a notice, is not judged."""
    drawn: DrawnRows | None = None
    """Since the epoch began; None: a version of before saved this, which counted none."""
    history: tuple[Evaluated, ...] = ()
    """Every evaluation so far, for the diagnosis at the end."""

    def judged(self, loss: float, name: str, keep_best: int) -> "TrainerState":
        """The state after an evaluation of the step that it is at.

        Args:
            name: of the checkpoint at this step.
            keep_best: how many of the best to remember.
        """
        better = not self.best or loss < self.best[0].validation_loss
        entry = Best(step=self.step, validation_loss=loss, name=name)
        best = tuple(sorted((*self.best, entry), key=lambda b: (b.validation_loss, b.step)))
        return self.model_copy(
            update={
                "best": best[:keep_best],
                "evaluations_without_better": 0 if better else self.evaluations_without_better + 1,
                "judged_at": self.step,
            }
        )


StoppedBy = Literal["epochs", "rounds", "patience"]


def finish(
    request: TrainRequest,
    events: EventWriter,
    state: TrainerState,
    stopped: StoppedBy,
    model: Ref,
    seconds: float,
) -> None:
    """Write the result of a training whose best model was exported."""
    best = state.best[0]
    result = TrainResult(
        session=request.session,
        attempt=request.attempt,
        step=state.step,
        best_step=best.step,
        stopped=stopped,
        model=model,
        metrics={"validation_loss": best.validation_loss},
        seconds=seconds,
        advice=advise(state.history),
    )
    events.finished(result, request.output.result)
