"""What the training of one run took, told by the events of the attempts that the run began."""

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import groupby

from ml_assets.records.experiments import TrainingUse
from ml_assets.spec.program import TrainResult, World
from ml_assets.spec.program.events import Event, Finished
from ml_assets.spec.training_story import TrainingStory

_ON_A_GPU = "gpu_memory_peak_mb"
"""Told only where the network lies on a GPU."""


def spent(
    events: Sequence[Event],
    session: str,
    world: World,
    since: datetime,
    price: Callable[[int], Decimal | None],
) -> TrainingUse:
    """The cost of a run and how far its session came.

    Args:
        events: of the whole session, in the order of its attempts.
        since: when the run began; older attempts were another run's.
        price: of an hour of a machine with so many GPUs; None: not known.
    """
    story = TrainingStory()
    for event in events:
        story.take(event)
    attempts = [list(told) for _, told in groupby(events, key=lambda event: event.attempt)]
    own = [told for told in attempts if told[0].time >= since]
    on_gpu = any(_ON_A_GPU in told for told in story.metrics.values())
    each = price(world.procs if on_gpu else 0)
    losses = [value for _, value in story.curve("validation_loss")]
    return TrainingUse(
        session=session,
        attempts=len(own),
        seconds=sum(_seconds(told) for told in own),
        world=world,
        gpus=world.nodes * world.procs if on_gpu else 0,
        price_per_hour=None if each is None else float(each),
        step=max(story.metrics, default=0),
        epochs=_last(story, "epoch"),
        train_loss=_last(story, "train_loss"),
        validation_loss=min(losses, default=None),
    )


def _seconds(events: Sequence[Event]) -> float:
    """Seconds of an attempt: from its first event to its last, or its own count if that is more."""
    times = [event.time for event in events]
    said = [
        event.result.seconds
        for event in events
        if isinstance(event, Finished) and isinstance(event.result, TrainResult)
    ]
    return max([(max(times) - min(times)).total_seconds(), *said])


def _last(story: TrainingStory, name: str) -> float | None:
    return next((value for _, value in reversed(story.curve(name))), None)
