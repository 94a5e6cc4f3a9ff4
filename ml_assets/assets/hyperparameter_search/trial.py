"""One training of a study: its reports while it ran, its result, and the hours it held."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event as Flag

from ml_assets.assets.hyperparameter_search.optuna_study import Proposal
from ml_assets.errors import (
    DoesNotFit,
    MlAssetsError,
    TrainingFailed,
    TrainingHindered,
    TrainingInterrupted,
)
from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.usage import keep_usage, session_usages
from ml_assets.spec.search import Budget
from ml_assets.spec.study_record import Trial, TrialEnd, lost
from ml_assets.spec.training import Boosted
from ml_assets.spec.training_program import TrainResult
from ml_assets.spec.training_program.events import Event, Failed, Placed, Warning
from ml_assets.spec.training_progress import TrainingStory
from ml_assets.spec.usage import AttemptUsage
from ml_assets.store.objects import LocalObjects


@dataclass(frozen=True)
class Hours:
    """Holds what was held, as the cost account counts it."""

    machine: float = 0.0
    gpu: float = 0.0

    def __add__(self, other: "Hours") -> "Hours":
        return Hours(self.machine + other.machine, self.gpu + other.gpu)

    def __sub__(self, other: "Hours") -> "Hours":
        return Hours(self.machine - other.machine, self.gpu - other.gpu)

    def spends(self, budget: Budget | None) -> str:
        """Return which budget this is all of; empty: none."""
        if budget is None:
            return ""
        if budget.machine_hours is not None and self.machine >= budget.machine_hours:
            return f"the budget of {budget.machine_hours:g} machine hours is spent"
        if budget.gpu_hours is not None and self.gpu >= budget.gpu_hours:
            return f"the budget of {budget.gpu_hours:g} GPU hours is spent"
        return ""


NOTHING = Hours()


def usages_of(objects: LocalObjects, session: str) -> Sequence[AttemptUsage]:
    """Return what the attempts of a session used that have ended, oldest first."""
    folder = objects.path("sessions", session)
    return session_usages(SessionFolder(folder)) if (folder / "attempts").is_dir() else ()


def used_by(objects: LocalObjects, session: str) -> Hours:
    """Return what they held, all together."""
    found = Hours()
    for usage in usages_of(objects, session):
        held = usage.held
        since = held.scheduled or held.started or held.ended  # the wait for a machine is free
        hours = held.nodes * (held.ended - since).total_seconds() / 3600
        found += Hours(hours, hours * held.gpus_per_node)
    return found


def mark_pruned(objects: LocalObjects, session: str) -> None:
    """The time of a pruned trial was no failure: the account reads how its last attempt ended."""
    usages = usages_of(objects, session)
    if usages and usages[-1].end == "stopped":
        pruned = usages[-1].model_copy(update={"end": "pruned"})
        keep_usage(SessionFolder.of(objects, session), pruned)


Outcome = TrainResult | BaseException


@dataclass
class Running:
    """A training that goes on now."""

    proposal: Proposal
    job: TrainJob
    repeat: bool
    """It is the best setting by another seed: nothing is learned from it but the spread."""
    began: datetime | None = field(default_factory=lambda: datetime.now(UTC))
    """Since when it holds its machines; None: it waits for them."""
    stop: Flag = field(default_factory=Flag)
    story: TrainingStory = field(default_factory=TrainingStory)
    rounds: int = 1
    """How many rounds of a population make a whole training."""
    pruned: bool = False
    held: Hours = NOTHING
    """What its session had used before this process came."""
    lost: Hours = NOTHING
    """What its attempts used since that were lost."""

    @property
    def named(self) -> str:
        """Return what people call it."""
        whose = named(self.proposal.own, self.proposal.number)
        return f"{whose} by seed {self.job.training.seed}" if self.repeat else whose

    def take(self, event: Event, used: Callable[[], Hours]) -> None:
        """Take in an event of a training; a cluster also tells when it gives and takes machines.

        Args:
            used: what the attempts of its session used that have ended.
        """
        self.story.take(event)
        taken = isinstance(event, Warning) and event.lost is not None and self.story.places
        if isinstance(event, Placed) or taken:
            self.began, self.lost = None if taken else event.time, used() - self.held

    def share(self, step: int, told: Mapping[str, float]) -> float:
        """Return how much of the training is done at an evaluation, above 0 and at most 1."""
        if isinstance(self.job.model, Boosted):
            return min(1.0, step / self.job.model.rounds)
        training = self.job.training
        ends = step / training.max_steps if training.max_steps else 0.0  # whichever comes first
        done = min(1.0, max(ends, told.get("epoch", 0.0) / training.epochs))
        part = self.proposal.part
        return done if part is None else (part.round + done) / self.rounds

    def curve(self, metric: str) -> list[tuple[float, float]]:
        """(share of the training, what is lowered) at each evaluation so far."""
        return [
            (self.share(step, told), loss)
            for step, told in sorted(self.story.metrics.items())
            if (loss := lost(metric, told)) is not None
        ]

    def came_to(self, result: TrainResult, metric: str) -> float:
        """Return what is lowered, of the weights that a training ended with.

        Raises:
            TrainingFailed: it told no such metric.
        """
        told = {**self.story.metrics.get(result.best_step, {}), **result.metrics}
        if (loss := lost(metric, told)) is None:
            raise TrainingFailed(
                f"the training reported no {metric} for step {result.best_step}: the validation "
                "split has rows of one class alone. Make it longer, or write metric: "
                "validation_loss"
            )
        return loss


def ending_of(one: Running, outcome: Outcome, metric: str) -> tuple[TrialEnd, str, float | None]:
    """Return how a training ended, why where it failed, and what it came to where it finished.

    Raises:
        BaseException: it is no trial's fault: everything stops.
    """
    try:
        if isinstance(outcome, TrainResult):
            return "finished", "", one.came_to(outcome, metric)
    except TrainingFailed as error:
        outcome = error
    if isinstance(outcome, TrainingInterrupted):
        return ("pruned" if one.pruned else "stopped"), "", None
    own_fault = isinstance(outcome, TrainingFailed) and not isinstance(outcome, TrainingHindered)
    if own_fault or isinstance(outcome, DoesNotFit):
        return "failed", str(outcome), None
    raise outcome


def earlier_ending(one: Running, told: Sequence[Event]) -> MlAssetsError:
    """Return how a trial ended that an earlier process saw end without a result."""
    if one.pruned:
        return TrainingInterrupted("it was pruned")
    reasons = [event.reason for event in told if isinstance(event, Failed)]
    return TrainingFailed(reasons[-1] if reasons else "it failed when it was tried")


def named(own: bool, number: int) -> str:
    return "the spec's own setting" if own else f"trial {number}"


def trial_line(trial: Trial, so_far: Sequence[Trial], judged: str) -> str:
    """One line about a trial that has ended."""
    whose = named(trial.own, trial.number)
    values = ", ".join(f"{path.partition('.')[2]} {value}" for path, value in trial.values.items())
    if trial.end == "failed":
        return f"{whose} ({values}) failed: {trial.reason.splitlines()[0]}"
    loss = "never judged" if trial.loss is None else f"{judged} {trial.loss:.5f}"
    done = [one.loss for one in so_far if one.end == "finished" and one.loss is not None]
    best = trial.end == "finished" and trial.loss == min(done, default=None)
    ending = "" if trial.end == "finished" else f", {trial.end}"
    return f"{whose} ({values}): {loss}{ending}{', the best so far' if best else ''}"
