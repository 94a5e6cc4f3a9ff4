"""A launcher: a request becomes a session, and a runner runs its attempts."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ml_assets.launch.attempts import AttemptRunner, SessionWork, run_session
from ml_assets.launch.launcher import (
    Job,
    MeasureJob,
    OnEvent,
    SanityJob,
    ScoreJob,
    ShouldStop,
    TrainJob,
    never,
)
from ml_assets.launch.next_attempt import Budgets, spread_over
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.session_name import (
    measure_session,
    program_of,
    sanity_session,
    score_session,
    train_session,
    training_asked,
)
from ml_assets.spec.memory_estimate import parameters_on, require_fits
from ml_assets.spec.sanity import NetworkSize
from ml_assets.spec.training import COUNTED, Module
from ml_assets.spec.training_program import (
    SCHEMA_FILE,
    MeasureRequest,
    MeasureResult,
    Reports,
    Request,
    SanityRequest,
    SanityResult,
    ScoreOutput,
    ScoreRequest,
    ScoreResult,
    ShardSchema,
    TrainOutput,
    TrainRequest,
    TrainResult,
    World,
    training_world,
)
from ml_assets.store.objects import LocalObjects
from ml_assets.store.signing import Keys

RequestT = TypeVar("RequestT", bound=Request)


class SessionLauncher:
    """Sessions in the object store's ``sessions/``, on any runner.

    Args:
        objects: where sessions lie.
        runner: runs their attempts.
        keys: the keys that make a score or a sanity check count.
        budgets: how often an attempt is made again.
        checkpoints: a folder or ``s3://bucket/prefix`` for all sessions; None: each beside its own.
    """

    def __init__(
        self,
        objects: LocalObjects,
        runner: AttemptRunner,
        keys: Callable[[], Keys],
        budgets: Budgets,
        checkpoints: str | None = None,
    ) -> None:
        self._objects = objects
        self._runner = runner
        self._keys = keys
        self._budgets = budgets
        self._checkpoints = checkpoints

    def world(self, job: TrainJob) -> World:
        """See ``Launcher.world``."""
        return self._runner.spread(training_world(job.model, job.training), job.cluster)

    def under_way(self, job: TrainJob) -> TrainJob | None:
        """See ``Launcher.under_way``."""
        name = train_session(job)
        if SessionFolder.of(self._objects, name).finished_training() is not None:
            return None
        program = self._runner.older(training_asked(job), name)
        return replace(job, program=program) if program is not None else None

    def train(
        self, job: TrainJob, on_event: OnEvent, should_stop: ShouldStop = never
    ) -> TrainResult:
        """See ``Launcher.train``."""
        name = train_session(job)
        folder = SessionFolder.of(self._objects, name, self._checkpoints)
        keys = self._keys() if job.evidence else None
        work = SessionWork(
            job.pipeline,
            "train",
            folder,
            self.world(job),
            self._fitting(
                job, _evidence(job, folder) if keys else partial(train_request, job, folder)
            ),
            partial(folder.finished_training, keys),
            job.cluster,
            keys,
            spot=job.training.spot is not None,
            asked=training_asked(job),
            only_what_runs=job.program is not None,
        )
        return run_session(work, self._runner, self._budgets, on_event, should_stop)

    def score(
        self, job: ScoreJob, on_event: OnEvent, should_stop: ShouldStop = never
    ) -> ScoreResult:
        """See ``Launcher.score``."""
        folder, keys = self._folder(score_session(job)), self._keys()
        work = SessionWork(
            job.pipeline,
            "score",
            folder,
            World(threads=job.threads),
            partial(score_request, job, folder),
            partial(folder.finished_scoring, keys),
            job.cluster,
            keys,
            spot=job.spot,
        )
        return run_session(work, self._runner, self._budgets, on_event, should_stop)

    def measure(self, job: MeasureJob) -> MeasureResult:
        """Take a few steps of a training and say how fast they were; errors are those of train."""
        folder = self._folder(measure_session(job))
        work = SessionWork(
            job.pipeline,
            "measure",
            folder,
            self._runner.spread(training_world(job.model, job.training), job.cluster),
            self._fitting(job, partial(measure_request, job, folder)),
            folder.finished_measuring,
            job.cluster,
            spot=job.training.spot is not None,
        )
        return run_session(work, self._runner, self._budgets, lambda _: None, never)

    def sanity(
        self, job: SanityJob, on_event: OnEvent, should_stop: ShouldStop = never
    ) -> SanityResult:
        """See ``Launcher.sanity``."""
        folder, keys = self._folder(sanity_session(job)), self._keys()
        work = SessionWork(
            job.pipeline,
            "sanity",
            folder,
            World(procs=2 if job.deep else 1, threads=job.training.threads),
            self._fitting(job, partial(sanity_request, job, folder)),
            partial(folder.finished_sanity, keys),
            job.cluster,
            keys,
            spot=job.training.spot is not None,
        )
        return run_session(work, self._runner, self._budgets, on_event, should_stop)

    def known_sanity(self, job: SanityJob) -> SanityResult | None:
        """See ``Launcher.known_sanity``."""
        folder, keys = self._folder(sanity_session(job)), self._keys()
        known = folder.finished_sanity(keys)
        if known is None:
            self._runner.recall(folder)
            known = folder.finished_sanity(keys)
        return known

    def _folder(self, session: str) -> SessionFolder:
        return SessionFolder.of(self._objects, session)

    def _fitting(
        self, job: TrainJob | MeasureJob | SanityJob, request: Callable[[int, World], RequestT]
    ) -> Callable[[int, World], RequestT]:
        """The request of an attempt, once its world is known to fit: before a process starts."""

        def held(number: int, world: World) -> RequestT:
            schema = Path(job.data.uri) / SCHEMA_FILE
            if not isinstance(job, SanityJob) and schema.is_file():
                self._require_cached(job, schema, world)
            own = self._measured_size(job)
            if own is not None:
                room = self._runner.room(job.cluster)
                counted = own.parameters, room
                require_fits(job.model, job.training, world, *counted, held=own.held_numbers)
            elif isinstance(job.model, COUNTED) and schema.is_file():
                columns = ShardSchema.model_validate_json(schema.read_bytes())
                count = parameters_on(job.model, columns)
                room = self._runner.room(job.cluster)
                if isinstance(job, SanityJob):  # on few rows: the network alone is held to it
                    room = replace(room, gpus=True)
                tokens = columns.preprocessing.tokens
                context = tokens.context if tokens else 1
                require_fits(job.model, job.training, world, count, room, context)
            return request(number, world)

        return held

    def _require_cached(self, job: TrainJob | MeasureJob, schema: Path, world: World) -> None:
        """Where rows are fetched: the pods have room for those that are read at a time."""
        cache = self._runner.room(job.cluster).data_cache
        if cache is None:
            return
        from ml_assets.launch.row_cache_size import require_cached

        read = ShardSchema.model_validate_json(schema.read_bytes())
        require_cached(read, job.training, world, job.cluster, cache)

    def _measured_size(self, job: TrainJob | MeasureJob | SanityJob) -> NetworkSize | None:
        """Of a team's own network, as it was when it was examined; None: it was not, or is ours."""
        if not isinstance(job.model, Module) or isinstance(job, SanityJob):
            return None
        asked = SanityJob(job.pipeline, job.model, job.training, job.data, job.cluster, job.code)
        examined = self.known_sanity(asked)
        return examined.size if examined else None


def train_request(job: TrainJob, folder: SessionFolder, number: int, world: World) -> TrainRequest:
    """A training that goes on from the newest whole checkpoint.

    Raises:
        StoreAway: nobody can tell which one that is.
    """
    return TrainRequest(
        **_asked(job, folder, number, world),
        training=spread_over(job.training, world.processes),
        init=job.init,
        teacher=job.teacher,
        members=job.members,
        resume=folder.newest_checkpoint(),
        steps=job.steps,
        output=TrainOutput(
            checkpoints=folder.checkpoints,
            model=str(folder.model),
            events=str(folder.events(number)),
            result=str(folder.result(number)),
        ),
    )


def _evidence(job: TrainJob, folder: SessionFolder) -> Callable[[int, World], TrainRequest]:
    """The requests of a training that is seen from its first step: a killed one begins anew."""
    begun = list[int]()

    def request(number: int, world: World) -> TrainRequest:
        if not begun:
            folder.begin_anew()
            begun.append(number)
        return train_request(job, folder, number, world)

    return request


def score_request(job: ScoreJob, folder: SessionFolder, number: int, world: World) -> ScoreRequest:
    """Predictions of a split."""
    return ScoreRequest(
        **_asked(job, folder, number, world),
        split=job.split,
        output=ScoreOutput(
            predictions=str(folder.predictions),
            events=str(folder.events(number)),
            result=str(folder.result(number)),
        ),
    )


def measure_request(
    job: MeasureJob, folder: SessionFolder, number: int, world: World
) -> MeasureRequest:
    """A few steps, for the time they take."""
    return MeasureRequest(
        **_asked(job, folder, number, world),
        training=spread_over(job.training, world.processes),
        steps=job.steps,
        output=Reports(events=str(folder.events(number)), result=str(folder.result(number))),
    )


def sanity_request(
    job: SanityJob, folder: SessionFolder, number: int, world: World
) -> SanityRequest:
    """The sanity checks of a training before it runs."""
    return SanityRequest(
        **_asked(job, folder, number, world),
        training=job.training,
        deep=job.deep,
        output=Reports(events=str(folder.events(number)), result=str(folder.result(number))),
    )


def _asked(job: Job, folder: SessionFolder, number: int, world: World) -> dict[str, Any]:
    """What every request says."""
    return {
        "session": folder.session,
        "attempt": number,
        "model": job.model,
        "data": job.data,
        "world": world,
        "program": program_of(job),
        "code": job.code,
    }
