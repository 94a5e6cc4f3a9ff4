"""A launcher of curves: a training is a known loss at each tenth, and takes no time."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ml_assets.assets.hyperparameter_search.optuna_study import Sampler
from ml_assets.assets.hyperparameter_search.plan import StudyPlan
from ml_assets.assets.hyperparameter_search.population import Population
from ml_assets.assets.hyperparameter_search.run_study import StudyRun, outcome
from ml_assets.assets.hyperparameter_search.study_memory import answering
from ml_assets.errors import TrainingInterrupted
from ml_assets.launch.launcher import OnEvent, ShouldStop, TrainJob, never
from ml_assets.launch.session_name import train_session
from ml_assets.spec.base import digest_of
from ml_assets.spec.load import load_spec
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.search import SearchSpec
from ml_assets.spec.study_record import Study
from ml_assets.spec.training_program import Ref, TrainResult, World
from ml_assets.spec.training_program.events import Metrics, Placed
from ml_assets.store.objects import LocalObjects
from ml_assets_tests.worlds import irises

TENTHS = 10
DATA = Ref(uri="/nowhere", digest="0" * 64)
Loss = Callable[[TrainJob, float], float]
"""A training and how much of it is done -> its validation loss."""


def iris_spec(root: Path) -> PipelineSpec:
    irises.plant(root, root)
    return load_spec(root / "irises")


@dataclass
class Curves:
    """Ends each training at once, and remembers what was asked."""

    loss: Loss
    trained: list[str] = field(default_factory=list)
    """Sessions, as often as one was trained to its end."""
    steps: int = 0
    """Tenths that were trained in all."""
    at_once: int = 0
    """Most trainings that went on at the same time."""
    finished: dict[str, TrainResult] = field(default_factory=dict)
    _running: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    before: Callable[[TrainJob, int], None] = lambda job, tenth: None
    """Called at each tenth: to wait, to fail, to kill."""
    metric: str = "validation_loss"
    """What ``loss`` tells of."""
    placed: bool = False
    """Whether a cluster says first that it gave machines."""
    epochs: float = 1.0
    """The part of its epochs that a training has taken at its end: ``max_steps`` came before."""
    behind: Callable[[], bool] | None = None
    """Whether the study has yet to read what was told; None: nobody waits for it."""

    def world(self, job: TrainJob) -> World:
        return World()

    def train(
        self, job: TrainJob, on_event: OnEvent, should_stop: ShouldStop = never
    ) -> TrainResult:
        session = train_session(job)
        known = self.finished.get(session)
        with self._lock:
            self._running += known is None
            self.at_once = max(self.at_once, self._running)
        try:
            if self.placed:
                now = datetime.now(UTC)
                on_event(Placed(session=session, attempt=1, seq=0, time=now, places=()))
            for tenth in range(1, TENTHS + 1):
                if known is None:
                    self.before(job, tenth)
                    if should_stop():
                        raise TrainingInterrupted("it was told to stop")
                    self.steps += 1
                on_event(self._event(job, session, tenth))
                if known is None and self.behind is not None:
                    on_event(self._event(job, session, tenth))  # read once the first is judged
                    while self.behind():
                        time.sleep(0.001)
        finally:
            with self._lock:
                self._running -= known is None
        if known is None:
            self.trained.append(session)
            self.finished[session] = self._result(job, session)
        return self.finished[session]

    def _event(self, job: TrainJob, session: str, tenth: int) -> Metrics:
        share = tenth / TENTHS
        epoch = self.epochs * share * job.training.epochs
        told = {self.metric: self.loss(job, share), "epoch": epoch}
        now = datetime.now(UTC)
        return Metrics(session=session, attempt=1, seq=tenth, time=now, step=tenth, metrics=told)

    def _result(self, job: TrainJob, session: str) -> TrainResult:
        return TrainResult(
            session=session,
            attempt=1,
            step=TENTHS,
            best_step=TENTHS,
            stopped="epochs",
            model=Ref(uri=f"/nowhere/{session}", digest=digest_of(session)),
            metrics={"validation_loss": self.loss(job, 1.0)},
            seconds=0.0,
        )


def plan_of(spec: PipelineSpec, more: Mapping[str, Any], parallel: int = 2) -> StudyPlan:
    """A study of the learning rate and the width of the irises' network."""
    search = SearchSpec.model_validate(
        {
            "method": "quasi_random",
            "trials": 8,
            "seeds": 1,
            "parameters": {
                "training.learning_rate": {"kind": "log_float", "low": 0.0001, "high": 0.1},
                "model.width": {"kind": "choice", "values": [8, 32, 64], "role": "scientific"},
            },
            **more,
        }
    )
    base = TrainJob(spec.name, spec.model, spec.training, DATA)
    return StudyPlan(spec, search, base, parallel, 1)


def studied(
    plan: StudyPlan,
    launcher: Curves,
    folder: Path,
    said: list[str] | None = None,
    patient: bool = False,
    place: str = "",
) -> Study:
    """Run a study in this process; its memory and its sessions lie in a folder.

    Args:
        place: the database that is its memory instead.
        patient: no training goes on before the study has judged what it told.
    """
    own = plan.search.own(plan.spec)
    population = plan.search.method == "population"
    told, objects = said if said is not None else [], LocalObjects(folder)
    with answering():
        memory = place or str(folder / "studies")
        sampler = (
            Population(plan.search, own, plan.fits)
            if population
            else Sampler(plan.search, own, plan.name, memory, plan.fits)
        )
        run = StudyRun(plan, sampler, launcher, objects, told.append, lambda trial, one: None)
        if patient:
            launcher.behind = lambda: not run._happened.empty()
        why = run.run()
        return outcome(plan, run, why)
