"""Runs one study: settings are proposed, trained in parallel, followed, pruned and reported.

A trial is a training session, named by everything that decides its result. A study that was killed
is asked for again, and finished trials are not trained a second time. Only the sessions hold a
trial's result; the memory of the sampler says which trials there are.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from queue import Empty, SimpleQueue

from ml_assets.assets.hyperparameter_search.optuna_study import Proposal, Sampler
from ml_assets.assets.hyperparameter_search.plan import StudyPlan
from ml_assets.assets.hyperparameter_search.population import Population
from ml_assets.assets.hyperparameter_search.trial import (
    Hours,
    Outcome,
    Running,
    earlier_ending,
    ending_of,
    mark_pruned,
    trial_line,
    usages_of,
    used_by,
)
from ml_assets.errors import TrainingFailed, TrainingInterrupted, counted
from ml_assets.launch.events import session_events
from ml_assets.launch.launcher import Launcher
from ml_assets.launch.session_name import train_session
from ml_assets.spec.study_record import Study, Trial, judged_by, lost
from ml_assets.spec.training_program import Ref, TrainResult
from ml_assets.spec.training_program.events import Event, Metrics
from ml_assets.store.objects import LocalObjects

_POLL_SECONDS = 0.2
OUTSIDE = -1
"""The number of the spec's own setting where the space does not hold it."""


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
        plan: StudyPlan,
        sampler: Sampler | Population,
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
        self._weights: dict[int, Ref] = {}
        """Number of a trial of a population -> the model that it came to."""
        self._over = 0
        search = plan.search
        self._trainings = search.trials * (search.rounds or 1) + max(1, search.seeds)
        """With the spec's own setting, and the best one by other seeds."""
        self._spent = Hours()
        self._why = ""
        self._metric = search.metric

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The trials that have ended, in the order of their numbers."""
        return tuple(self._trials[number] for number in sorted(self._trials))

    @property
    def seeds(self) -> tuple[float, ...]:
        """The losses of the best setting by other seeds."""
        return tuple(self._repeats[seed] for seed in sorted(self._repeats))

    def importances(self) -> dict[str, float]:
        """Path -> its share of what the loss varies by; nothing of a population, whose trials are
        no samples of the space."""
        return {} if isinstance(self._sampler, Population) else self._sampler.importances()

    def run(self) -> str:
        """Train what is left to train, and say why nothing is.

        Raises:
            TrainingFailed: not one trial came to a result.
            MlAssetsError: the machines or the store are away, or a disk is full; what was trained
                stays.
        """
        if isinstance(self._sampler, Population):
            self._go_through_rounds(self._sampler)
        else:
            self._go_on(self._taken_up(self._sampler))
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

    def _go_through_rounds(self, population: Population) -> None:
        """Every member of a round, then those of the next one."""
        own, rounds = self._plan.search.own(self._plan.spec), self._plan.search.rounds or 1
        now = population.first()
        outside = Proposal(OUTSIDE, own, own=True)  # trained whole, as the model is
        self._go_on((one, None) for one in (outside, *now))
        for number in range(1, rounds):
            before = [self._trials[one.number] for one in now]
            if self._is_spent() or not any(one.number in self._weights for one in before):
                break
            now = population.following(number, before, self._weights)
            self._go_on((one, None) for one in now)
        self._why = self._is_spent() or f"{counted(rounds, 'round', 'were')} asked for"

    def _taken_up(self, sampler: Sampler) -> Iterator[tuple[Proposal, int | None]]:
        """What an earlier process began, then new settings until the study has enough."""
        known = sampler.known
        if known:
            begun = f"{len(known)} of {counted(self._trainings, 'training')}"
            self._tell(f"the study continues: {begun} were begun before")
        for proposal in known:
            if not proposal.own:  # that is trained without a study, too
                self._spent += used_by(self._objects, train_session(self._plan.job(proposal)))
        yield from ((proposal, None) for proposal in known)
        own = self._plan.search.own(self._plan.spec)
        if not self._plan.search.proposes(own):
            yield Proposal(OUTSIDE, own, own=True), None
        while sampler.proposed < self._plan.search.trials and not self._is_spent():
            proposal = sampler.ask()
            if proposal is None:
                self._why = "every setting of the space was tried"
                return
            yield proposal, None
        asked = f"{counted(self._plan.search.trials, 'trial', 'were')} asked for"
        self._why = self._is_spent() or asked

    def _other_seeds(self) -> Iterator[tuple[Proposal, int | None]]:
        """The best setting by other seeds: how much luck there is in its loss.

        Of a population the spec's own: the best one there is no setting, but a schedule.
        """
        done = [
            one
            for one in self.trials
            if one.end == "finished" and one.loss is not None and one.round is None
        ]
        if not done:
            return
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
        found.rounds = self._plan.search.rounds or 1
        if self._plan.processes is None:
            found.began = None  # a cluster tells when it gives machines
        if found.repeat or proposal.part is not None:
            self._spent += found.held
        if proposal.ended in ("pruned", "failed") and not found.repeat:
            found.pruned = proposal.ended == "pruned"
            self._end(found, earlier_ending(found, self._events(session)))
            return True
        bound = proposal.ended is None and not proposal.own and not found.repeat
        if bound and self._is_spent():
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
            one.take(happened, partial(used_by, self._objects, session))
            if isinstance(happened, Metrics):
                self._judge(one, happened)

    def _judge(self, one: Running, event: Metrics) -> None:
        asked, sampler = one.proposal, self._sampler
        if one.repeat or one.pruned or asked.number == OUTSIDE or asked.ended == "finished":
            return
        if isinstance(sampler, Population):
            return
        share, loss = one.share(event.step, event.metrics), lost(self._metric, event.metrics)
        if loss is None or share <= 0 or not sampler.reports(asked.number, share, loss):
            return
        one.pruned = True
        sampler.ends(asked.number, "pruned")
        one.stop.set()

    def _stop_all(self) -> None:
        for one in self._running.values():
            one.stop.set()

    # --- what it came to --------------------------------------------------------------------------

    def _end(self, one: Running, outcome: Outcome) -> None:
        number, session = one.proposal.number, train_session(one.job)
        used = used_by(self._objects, session)
        since = used - one.held
        self._spent += since if since.machine > 0 else self._goes_on(one)
        end, reason, came_to = ending_of(one, outcome, self._metric)
        judged = judged_by(self._metric)
        if end == "pruned":
            mark_pruned(self._objects, session)
        curve, part = self._curve(one, session), one.proposal.part
        loss = min((value for _, value in curve), default=None) if came_to is None else came_to
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
            round=part.round if part else None,
            parent=part.parent if part else None,
        )
        if one.repeat:
            if came_to is not None:
                self._repeats[one.job.training.seed] = came_to
                self._say(f"{one.named}: {judged} {came_to:.5f}")
                self._ended(trial, one)
            return
        self._trials[number] = trial
        if isinstance(self._sampler, Population):
            if isinstance(outcome, TrainResult) and end == "finished":
                self._weights[number] = outcome.model
        elif end != "stopped" and number != OUTSIDE and not one.proposal.told:
            self._sampler.tell(number, end, loss if end == "finished" else None)
        self._say(trial_line(trial, self.trials, judged))
        self._ended(trial, one)

    def _say(self, line: str) -> None:
        """A training is over: what it came to, and how far the study is."""
        self._over += 1
        self._tell(f"{line} ({self._over} of {self._trainings})")

    def _curve(self, one: Running, session: str) -> list[tuple[float, float]]:
        """As its session tells it, also where nothing ran now."""
        if not one.story.metrics:
            for event in self._events(session):
                one.story.take(event)
        return one.curve(self._metric)

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
        """What a training used that nobody has counted yet."""
        if one.began is None:
            return one.lost
        seconds = (datetime.now(UTC) - one.began).total_seconds()
        hours = self._launcher.world(one.job).nodes * seconds / 3600
        return one.lost + Hours(hours, hours * one.job.cluster.gpus_per_node)


def outcome(plan: StudyPlan, run: StudyRun, why: str) -> Study:
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
        importances=run.importances(),
        ended=why,
        time=datetime.now(UTC),
    )
    best = found.best
    compared = found.own.end != "stopped"  # else nobody knows whether the best one is better
    won = compared and not best.own
    return found.model_copy(update={"winner": best.number}) if won else found
