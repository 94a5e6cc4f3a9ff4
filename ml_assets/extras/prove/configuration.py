"""Whether a training's record is what was trained by: its own digests, and the session's name."""

from ml_assets.assets.trained_model.initial_weights import KEY as INIT_FROM
from ml_assets.assets.trained_model.training_job import data_ref
from ml_assets.extras.prove.reproduction import Reproduction
from ml_assets.launch.events import attempt_numbers
from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.session_name import train_session
from ml_assets.launch.staging.mirror import session_here
from ml_assets.records.run_record import RunRecord, contradiction
from ml_assets.spec.program import Ref, TrainRequest
from ml_assets.spec.records import StageRecord
from ml_assets.store.pipeline_context import Pipeline


def configuration(
    pipeline: Pipeline,
    record: RunRecord,
    data: StageRecord,
) -> Reproduction:
    """The verdict on what was asked for: spec, seed, data, initial weights.

    Args:
        pipeline: by the record's spec; the session's own request is read, if it is kept.
        data: the training set's record.
    """
    asset = f"{pipeline.name}/configuration"
    said = contradiction(record)
    if said:
        return Reproduction(asset, "differs", f"the run record contradicts itself: {said}")
    begin = next((i for i in record.inputs if i.key == INIT_FROM), None)
    init = Ref(uri=begin.path, digest=begin.version) if begin else None
    job = TrainJob(
        pipeline.name,
        pipeline.spec.model,
        pipeline.spec.training,
        data_ref(pipeline, data),
        record.salt,
        init,
        program=record.program,
        code=pipeline.network,
    )
    session = train_session(job)
    if session == record.session:
        return Reproduction(asset, "equal", f"seed {record.seed}")
    said = _other_request(pipeline, record) or (
        "its model, training (the seed too), training set or initial weights are not what the"
        " session was named by"
    )
    return Reproduction(asset, "differs", f"{said}", 1, record.session, session)


def _other_request(pipeline: Pipeline, record: RunRecord) -> str:
    """Which fields differ from the request that ran, where that is kept."""
    folder = session_here(pipeline.objects, record.session)
    for number in reversed(attempt_numbers(folder)):
        try:
            data = (folder / "attempts" / str(number) / "request.json").read_bytes()
        except OSError:
            continue
        request = TrainRequest.model_validate_json(data)
        differing = [
            f"{part}.{name} is {getattr(said, name, None)!r} in the record and"
            f" {getattr(ran, name, None)!r} in the request that ran"
            for part, said, ran in (
                ("model", pipeline.spec.model, request.model),
                ("training", pipeline.spec.training, request.training),
            )
            for name in type(ran).model_fields
            if getattr(said, name, None) != getattr(ran, name, None)
        ]
        return "; ".join(differing)
    return ""
