"""The end of a training that is done: its result, written whole, then told."""

from pathlib import Path
from typing import Literal

from ml_assets.spec.canonical import canonical_json
from ml_assets.spec.program import Ref, TrainRequest, TrainResult
from ml_assets.store.objects import write_whole
from ml_assets.training.checkpoints.files import TrainerState
from ml_assets.training.diagnosis import advise
from ml_assets.training.events import EventWriter

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
    write_whole(Path(request.output.result), canonical_json(result))
    events.finished(result)
