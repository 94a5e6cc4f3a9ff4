"""The resume drill: train a little twice, kill a part of the second one, compare the weights.

It kills what may die at any time: a process of this machine, or a pod of a cluster.
"""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ml_assets.errors import TrainingFailed
from ml_assets.launch.ephemeral_session import EphemeralSession
from ml_assets.launch.launcher import TrainJob
from ml_assets.spec.training import Boosted
from ml_assets.spec.training_program import ModelManifest, TrainResult
from ml_assets.spec.training_program.events import Checkpoint, Event, Progress

SALT = "drill"
_STEPS = (60, 240, 960)
"""Steps of a drill; more where training was over before the kill came."""
_EVERY_STEP = 1e-9
"""Minutes between checkpoints."""
Opened = Callable[[], AbstractContextManager[EphemeralSession]]


@dataclass(frozen=True)
class DrillOutcome:
    """The result of a drill."""

    passed: bool
    reason: str
    undisturbed: str
    """SHA-256 of the weights."""
    resumed: str | None = None
    rank: int | None = None
    """Whose process was killed; None: training was over before."""
    step: int | None = None
    """The last step that was known to be saved then."""
    seconds: float | None = None
    """From the kill to the next step that was saved."""


def resume_drill(job: TrainJob, opened: Opened, draw: random.Random) -> DrillOutcome:
    """Hold a training, cut to a few steps, to its promise: a kill does not show in the weights.

    Args:
        job: what is trained in earnest; its session is not touched.
        opened: a launcher for each of the two trainings, and a store of its own.
        draw: chooses the rank and the step.

    Raises:
        TrainingFailed: the training fails without anybody's doing.
        TrainingInterrupted: it was told to stop.
    """
    for steps in _STEPS[:-1]:
        outcome = _turn(job, opened, steps, draw)
        if outcome.seconds is not None or outcome.resumed is None:
            return outcome
    return _turn(job, opened, _STEPS[-1], draw)


def _turn(job: TrainJob, opened: Opened, steps: int, draw: random.Random) -> DrillOutcome:
    """One drill of so many steps."""
    with opened() as undisturbed, opened() as hurt:
        whole = undisturbed.launcher.train(_in(undisturbed, job, steps), lambda _: None)
        ranks = hurt.launcher.world(job).processes
        killer = Killer(hurt.launcher.kill, draw.randint(1, steps // 3), draw.randrange(ranks))
        try:
            resumed = hurt.launcher.train(_in(hurt, job, steps), killer.follow)
        except TrainingFailed as error:
            return judged(whole, None, killer, str(error))
        return judged(whole, resumed, killer)


def _in(room: EphemeralSession, job: TrainJob, steps: int) -> TrainJob:
    return short_job(replace(job, data=room.reachable(job.data)), steps)


def short_job(job: TrainJob, steps: int) -> TrainJob:
    """The same training for a few steps, each of them saved, in a session of its own."""
    changes: dict[str, float] = {
        "checkpoint_minutes": _EVERY_STEP,
        "evaluate_every": max(1, steps // 3),
        "patience": steps,
    }
    if not isinstance(job.model, Boosted):
        changes["epochs"] = max(job.training.epochs, steps)
    training = job.training.model_copy(update=changes)
    return replace(job, training=training, salt=SALT, steps=steps)


class Killer:
    """Follows a training, and kills one of its ranks when it has saved so many steps.

    Args:
        kill: session, attempt, rank -> whether that was there to be killed.
    """

    def __init__(self, kill: Callable[[str, int, int], bool], step: int, rank: int) -> None:
        self.rank = rank
        self.step = step
        self.killed: datetime | None = None
        self.went_on: datetime | None = None
        self._kill_rank = kill
        self._resumed = False

    def follow(self, event: Event) -> None:
        if isinstance(event, Progress) and self.killed is not None:
            self._resumed = self._resumed or event.message.startswith("resumed")
        elif isinstance(event, Checkpoint):
            if self.killed is None and event.step >= self.step:
                self._kill(event)
            elif self._resumed and self.went_on is None:
                self.went_on = event.time

    def _kill(self, event: Checkpoint) -> None:
        if self._kill_rank(event.session, event.attempt, self.rank):
            self.step, self.killed = event.step, datetime.now(UTC)


def judged(
    whole: TrainResult, resumed: TrainResult | None, killer: Killer, error: str = ""
) -> DrillOutcome:
    """The outcome, from both results and what the killer saw."""
    outcome = DrillOutcome(False, "", weights_of(whole), resumed and weights_of(resumed))
    if killer.killed is not None:
        outcome = replace(outcome, rank=killer.rank, step=killer.step)
    if resumed is None:
        return replace(outcome, reason=f"It did not recover: {error}")
    if killer.killed is None or killer.went_on is None:
        return replace(outcome, reason=f"{whole.step} steps were over before the kill came.")
    seconds = (killer.went_on - killer.killed).total_seconds()
    same = outcome.resumed == outcome.undisturbed
    reason = (
        f"Rank {killer.rank} was killed at step {killer.step} of {whole.step}; training continued "
        f"{seconds:.0f} s later, and "
        + ("ended in the same weights, bit for bit." if same else "ended in OTHER weights.")
    )
    return replace(outcome, passed=same, reason=reason, seconds=seconds)


def weights_of(result: TrainResult) -> str:
    """SHA-256 of a model's weights, from its manifest."""
    manifest = (Path(result.model.uri) / "model.json").read_bytes()
    return ModelManifest.model_validate_json(manifest).weights.sha256
