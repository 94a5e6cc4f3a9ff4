"""One study: settings are proposed, trained side by side, followed, pruned and told about.

A trial is a training session of the training program, named by all that decides its result: a study
that is killed anywhere is asked for again, and what was trained is not trained a second time. Only
the sessions say what a trial came to; the memory of the sampler says which ones there are.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from threading import Event as Flag

from ml_assets.assets.hyperparameter_search.hours import (
    NOTHING,
    Hours,
    mark_pruned,
    usages_of,
    used_by,
)
from ml_assets.assets.hyperparameter_search.optuna_study import Proposal, Sampler
from ml_assets.assets.hyperparameter_search.plan import Plan
from ml_assets.errors import (
    DoesNotFit,
    MlAssetsError,
    TrainingFailed,
    TrainingInterrupted,
    counted,
)
from ml_assets.launch.events import session_events
from ml_assets.launch.launcher import Launcher, TrainJob
from ml_assets.launch.session_name import train_session
from ml_assets.spec.program import TrainResult
from ml_assets.spec.program.events import Event, Failed, Metrics
from ml_assets.spec.study import Study, Trial, TrialEnd
from ml_assets.spec.training import Boosted
from ml_assets.spec.training_story import TrainingStory
from ml_assets.store.objects import LocalObjects

LOSS = "validation_loss"
_POLL_SECONDS = 0.2
OUTSIDE = -1
"""The number of the spec's own setting where the space does not hold it."""


@dataclass
class Running:
    """A training that goes on now."""

    proposal: Proposal
    job: TrainJob
    repeat: bool
    """It is the best setting by another seed: nothing is learned from it but the spread."""
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    stop: Flag = field(default_factory=Flag)
    story: TrainingStory = field(default_factory=TrainingStory)
    pruned: bool = False
    held: Hours = NOTHING
    """What its session had used before this process came."""

    def share(self, event: Metrics) -> float:
        """How much of the training is done, above 0 and at most 1."""
        if isinstance(self.job.model, Boosted):
            return min(1.0, event.step / self.job.model.rounds)
        return min(1.0, event.metrics.get("epoch", 0.0) / self.job.training.epochs)

    def curve(self) -> list[tuple[float, float]]:
        """(share of the training, loss) at each evaluation so far."""
        told = sorted(self.story.metrics.items())
        whole = self.job.model.rounds if isinstance(self.job.model, Boosted) else None
        epochs = self.job.training.epochs
        return [
            (
                min(1.0, step / whole if whole else values.get("epoch", 0.0) / epochs),
                values[LOSS],
            )
            for step, values in told
            if LOSS in values
        ]


Outcome = TrainResult | MlAssetsError | BaseException
Ended = Callable[[Trial, Running], None]
"""Told of each training that has ended, as it does."""


class StudyRun:
    """The trainings of one study, until nothing is left to train.

    Args:
        objects: where the sessions lie.
        tell: what people read while it runs.
        ended: told of each trial once it is over, in this process.
    """

    def __init__(
        self,
        plan: Plan,
        sampler: Sampler,
        launcher: Launcher,
        objects: LocalObjects,
        tell: Callable[[str], None],
        ended: Ended,
    ) -> None:
        self._plan = plan
        self._sampler = sampler
        self._launcher = launcher
        self._objects = objects
        self._tell = tell
        self._ended = ended
        self._running: dict[str, Running] = {}
        self._happened: SimpleQueue[tuple[str, Event | Outcome]] = SimpleQueue()
        self._trials: dict[int, Trial] = {}
        self._repeats: dict[int, float] = {}
        self._spent = Hours()
        self._why = ""

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Those that have ended, in the order of their numbers."""
        return tuple(self._trials[number] for number in sorted(self._trials))

    @property
    def seeds(self) -> tuple[float, ...]:
        """The losses of the best setting by other seeds."""
        return tuple(self._repeats[seed] for seed in sorted(self._repeats))

    def run(self) -> str:
        """Train what is left to train, and say why nothing is.

        Raises:
            TrainingFailed: not one trial came to a result.
            MlAssetsError: the machines or the store are away; what was trained stays.
        """
        waiting = self._taken_up()
        self._go_on(waiting)
        if not any(one.end == "finished" for one in self.trials):
            raise TrainingFailed(self._nothing())
        if not self._is_spent():
            self._go_on(self._other_seeds())
        return self._is_spent() or self._why

    def _nothing(self) -> str:
        """Why not one trial came to a result."""
        if spent := self._is_spent():
            return f"{self._plan.name}: {spent}, and no trial was finished. Allow more of it."
        reasons = "\n".join(f"  trial {one.number}: {one.reason}" for one in self.trials)
        return f"{self._plan.name}: no trial came to a result.\n{reasons}"

    # --- what is trained next ---------------------------------------------------------------------

    def _taken_up(self) -> Iterator[tuple[Proposal, int | None]]:
        """What an earlier process began, then new settings until the study has enough."""
        known = self._sampler.known
        for proposal in known:
            if not proposal.own:  # that is trained without a study, too
                self._spent += used_by(self._objects, train_session(self._plan.job(proposal)))
        yield from ((proposal, None) for proposal in known)
        own = self._plan.search.own(self._plan.spec)
        if not self._plan.search.proposes(own):
            yield Proposal(OUTSIDE, own, own=True), None
        while self._sampler.proposed < self._plan.search.trials and not self._is_spent():
            proposal = self._sampler.ask()
            if proposal is None:
                self._why = "every setting of the space was tried"
                return
            yield proposal, None
        asked = f"{counted(self._plan.search.trials, 'trial')} were asked for"
        self._why = self._is_spent() or asked

    def _other_seeds(self) -> Iterator[tuple[Proposal, int | None]]:
        """The best setting by other seeds: how much luck there is in its loss."""
        done = [one for one in self.trials if one.end == "finished" and one.loss is not None]
        best = min(done, key=lambda one: (one.loss, one.number))
        self._repeats[self._plan.base.training.seed] = best.loss or 0.0
        first = self._plan.base.training.seed
        proposal = Proposal(best.number, best.values, own=best.own)
        for seed in range(first + 1, first + self._plan.search.seeds):
            yield proposal, seed

    # --- the loop ---------------------------------------------------------------------------------

    def _go_on(self, waiting: Iterator[tuple[Proposal, int | None]]) -> None:
        with ThreadPoolExecutor(self._plan.parallel, "trial") as pool:
            try:
                more = True
                while more or self._running:
                    while more and len(self._running) < self._plan.parallel:
                        more = self._begin_next(waiting, pool)
                    self._follow()
                    if self._is_spent():
                        self._stop_all()
            except BaseException:
                self._stop_all()  # each saves; the pool waits for them
                raise

    def _begin_next(
        self, waiting: Iterator[tuple[Proposal, int | None]], pool: ThreadPoolExecutor
    ) -> bool:
        """Begin one training; False: none is left."""
        following = next(waiting, None)
        if following is None:
            return False
        proposal, seed = following
        job = self._plan.job(proposal, seed)
        session = train_session(job)
        found = Running(proposal, job, seed is not None, held=used_by(self._objects, session))
        if found.repeat:
            self._spent += found.held
        elif proposal.ended in ("pruned", "failed"):
            found.pruned = proposal.ended == "pruned"
            self._end(found, _again(found, self._events(session)))
            return True
        elif proposal.ended is None and not proposal.own and self._is_spent():
            self._end(found, TrainingInterrupted("the budget is spent"))
            return True
        self._running[session] = found
        pool.submit(self._train, session, found)
        return True

    def _train(self, session: str, one: Running) -> None:
        """In a thread of its own: everything it learns goes through the queue."""
        try:
            outcome: Outcome = self._launcher.train(
                one.job, lambda event: self._happened.put((session, event)), one.stop.is_set
            )
        except BaseException as error:
            outcome = error
        self._happened.put((session, outcome))

    def _follow(self) -> None:
        """What happened since: a while is waited for the first of it."""
        wait = _POLL_SECONDS
        while self._running:
            try:
                session, happened = self._happened.get(timeout=wait)
            except Empty:
                return
            wait = 0.0
            one = self._running[session]
            if isinstance(happened, TrainResult | BaseException):
                del self._running[session]
                self._end(one, happened)
                return  # its place is free
            one.story.take(happened)
            if isinstance(happened, Metrics) and LOSS in happened.metrics:
                self._judge(one, happened)

    def _judge(self, one: Running, event: Metrics) -> None:
        if one.repeat or one.pruned or one.proposal.number == OUTSIDE:
            return
        if one.proposal.ended == "finished":
            return
        share = one.share(event)
        if share <= 0 or not self._sampler.reports(one.proposal.number, share, event.metrics[LOSS]):
            return
        one.pruned = True
        self._sampler.ends(one.proposal.number, "pruned")
        one.stop.set()

    def _stop_all(self) -> None:
        for one in self._running.values():
            one.stop.set()

    # --- what it came to --------------------------------------------------------------------------

    def _end(self, one: Running, outcome: Outcome) -> None:
        number, session = one.proposal.number, train_session(one.job)
        used = used_by(self._objects, session)
        since = Hours(used.machine - one.held.machine, used.gpu - one.held.gpu)
        self._spent += since if since.machine > 0 else self._goes_on(one)
        end, reason = _how(one, outcome)
        if end == "pruned":
            mark_pruned(self._objects, session)
        if one.repeat:
            if isinstance(outcome, TrainResult):
                self._repeats[one.job.training.seed] = outcome.metrics[LOSS]
                self._tell(
                    f"{_named(one.proposal.own, number)} by seed {one.job.training.seed}:"
                    f" validation loss {outcome.metrics[LOSS]:.5f}"
                )
            return
        curve = self._curve(one, session)
        loss = min((value for _, value in curve), default=None)
        if isinstance(outcome, TrainResult):
            loss = outcome.metrics[LOSS]
        trial = Trial(
            number=number,
            values=dict(one.proposal.values),
            session=session,
            own=one.proposal.own,
            end=end,
            loss=loss,
            curve=tuple(curve),
            machine_hours=used.machine,
            gpu_hours=used.gpu,
            attempts=len(usages_of(self._objects, session)),
            reason=reason,
        )
        self._trials[number] = trial
        if end != "stopped" and number != OUTSIDE and not one.proposal.told:
            self._sampler.tell(number, end, loss if end == "finished" else None)
        self._tell(_said(trial, self.trials))
        self._ended(trial, one)

    def _curve(self, one: Running, session: str) -> list[tuple[float, float]]:
        """As its session tells it, also where nothing ran now."""
        if not one.story.metrics:
            for event in self._events(session):
                one.story.take(event)
        return one.curve()

    def _events(self, session: str) -> Sequence[Event]:
        folder = self._objects.path("sessions", session)
        return session_events(folder) if folder.is_dir() else []

    def _is_spent(self) -> str:
        """Which budget is spent; empty: none."""
        return self._now_spent().spends(self._plan.search.budget)

    def _now_spent(self) -> Hours:
        """With what runs: a trial is a machine, or the GPUs that the spec asks for."""
        return sum((self._goes_on(one) for one in self._running.values()), self._spent)

    def _goes_on(self, one: Running) -> Hours:
        """What a training takes whose usage nobody has written down yet."""
        seconds = (datetime.now(UTC) - one.began).total_seconds()
        hours = self._launcher.world(one.job).nodes * seconds / 3600
        return Hours(hours, hours * one.job.cluster.gpus_per_node)


def _how(one: Running, outcome: Outcome) -> tuple[TrialEnd, str]:
    """How a training ended, and why where it failed.

    Raises:
        BaseException: it is no trial's fault: everything stops.
    """
    if isinstance(outcome, TrainResult):
        return "finished", ""
    if isinstance(outcome, TrainingInterrupted):
        return ("pruned" if one.pruned else "stopped"), ""
    if isinstance(outcome, TrainingFailed | DoesNotFit):
        return "failed", str(outcome)
    raise outcome


def _again(one: Running, told: Sequence[Event]) -> MlAssetsError:
    """How a trial ended that an earlier process saw end without a result."""
    if one.pruned:
        return TrainingInterrupted("it was pruned")
    reasons = [event.reason for event in told if isinstance(event, Failed)]
    return TrainingFailed(reasons[-1] if reasons else "it failed when it was tried")


def _named(own: bool, number: int) -> str:
    return "the spec's own setting" if own else f"trial {number}"


def _said(trial: Trial, so_far: Sequence[Trial]) -> str:
    """One line about a trial that has ended."""
    named = _named(trial.own, trial.number)
    values = ", ".join(f"{path.partition('.')[2]} {value}" for path, value in trial.values.items())
    if trial.end == "failed":
        return f"{named} ({values}) failed: {trial.reason.splitlines()[0]}"
    loss = "never judged" if trial.loss is None else f"validation loss {trial.loss:.5f}"
    done = [one.loss for one in so_far if one.end == "finished" and one.loss is not None]
    best = trial.end == "finished" and trial.loss == min(done, default=None)
    how = "" if trial.end == "finished" else f", {trial.end}"
    return f"{named} ({values}): {loss}{how}{', the best so far' if best else ''}"


def outcome(plan: Plan, run: StudyRun, importances: dict[str, float], why: str) -> Study:
    """The record of a study whose trainings are over."""
    found = Study(
        pipeline=plan.base.pipeline,
        name=plan.name,
        space=plan.search.space,
        data=plan.base.data.digest,
        search=plan.search.model_dump(mode="json"),
        trials=run.trials,
        winner=None,
        seeds=run.seeds,
        importances=importances,
        ended=why,
        time=datetime.now(UTC),
    )
    best = found.best
    return found if best.own else found.model_copy(update={"winner": best.number})
