"""The request of an attempt: a job, where its session lies, and the processes it may have."""

from ml_assets.launch.folder import SessionFolder
from ml_assets.launch.launcher import MeasureJob, SanityJob, ScoreJob, TrainJob
from ml_assets.launch.recovery import spread_over
from ml_assets.launch.session import program_of
from ml_assets.spec.program import (
    MeasureRequest,
    Reports,
    SanityRequest,
    ScoreOutput,
    ScoreRequest,
    TrainOutput,
    TrainRequest,
    World,
)


def train_request(job: TrainJob, folder: SessionFolder, number: int, world: World) -> TrainRequest:
    """A training that goes on from the newest whole checkpoint.

    Raises:
        StoreAway: nobody can tell which one that is.
    """
    return TrainRequest(
        session=folder.session,
        attempt=number,
        model=job.model,
        training=spread_over(job.training, world.processes),
        data=job.data,
        init=job.init,
        resume=folder.newest_checkpoint(),
        steps=job.steps,
        output=TrainOutput(
            checkpoints=folder.checkpoints,
            model=str(folder.model),
            events=str(folder.events(number)),
            result=str(folder.result(number)),
        ),
        world=world,
        program=program_of(job),
        code=job.code,
    )


def score_request(job: ScoreJob, folder: SessionFolder, number: int, world: World) -> ScoreRequest:
    """Predictions of a split."""
    return ScoreRequest(
        session=folder.session,
        attempt=number,
        model=job.model,
        data=job.data,
        split=job.split,
        output=ScoreOutput(
            predictions=str(folder.predictions),
            events=str(folder.events(number)),
            result=str(folder.result(number)),
        ),
        world=world,
        program=program_of(job),
        code=job.code,
    )


def measure_request(
    job: MeasureJob, folder: SessionFolder, number: int, world: World
) -> MeasureRequest:
    """A few steps, for the time they take."""
    return MeasureRequest(
        session=folder.session,
        attempt=number,
        model=job.model,
        training=job.training,
        data=job.data,
        steps=job.steps,
        output=Reports(events=str(folder.events(number)), result=str(folder.result(number))),
        world=world,
        program=program_of(job),
        code=job.code,
    )


def sanity_request(
    job: SanityJob, folder: SessionFolder, number: int, world: World
) -> SanityRequest:
    """An examination of a training before it runs."""
    return SanityRequest(
        session=folder.session,
        attempt=number,
        model=job.model,
        training=job.training,
        data=job.data,
        output=Reports(events=str(folder.events(number)), result=str(folder.result(number))),
        world=world,
        program=program_of(job),
        code=job.code,
        deep=job.deep,
    )
