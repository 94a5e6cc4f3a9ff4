"""Turns a request with paths of this machine into one with addresses on S3, for a pod."""

from pathlib import Path

from ml_assets.settings import is_s3
from ml_assets.spec.training_program import (
    MeasureRequest,
    Ref,
    Request,
    SanityRequest,
    ScoreRequest,
    TrainRequest,
)
from ml_assets.spec.training_program.pod import (
    EVENTS,
    EVENTS_FILE,
    MODEL,
    PREDICTIONS,
    RESULT,
    SESSIONS,
    attempt_of,
)
from ml_assets.store.s3.content import MODELS
from ml_assets.store.s3.objects import S3Objects


def addressed(request: Request, objects: S3Objects, checkpoints: str) -> Request:
    """Publish what a request reads, and name everything by its address on S3.

    Args:
        checkpoints: the address of the session's.

    Raises:
        StorageError: what it reads is damaged, or no object of the store.
        StoreAway: it is not published.
    """
    there = f"{objects.place.uri}/{attempt_of(request.session, request.attempt)}"
    output: dict[str, object] = {
        "events": f"{there}/{EVENTS}{EVENTS_FILE}",
        "result": f"{there}/{RESULT}",
    }
    changed: dict[str, object] = {"data": _published(request.data, objects)}
    match request:
        case TrainRequest():
            output |= {"model": f"{there}/{MODEL}", "checkpoints": checkpoints}
            if request.init is not None:
                changed["init"] = _initial(request.init, request.session, objects)
            if request.teacher is not None:
                changed["teacher"] = _adopted(request.teacher, objects)
            changed["members"] = tuple(_adopted(one, objects) for one in request.members)
        case ScoreRequest():
            output["predictions"] = f"{there}/{PREDICTIONS}"
            changed["model"] = _adopted(request.model, objects)
        case MeasureRequest() | SanityRequest():
            pass
    changed["output"] = request.output.model_copy(update=output)
    return request.model_copy(update=changed)


def _published(ref: Ref, objects: S3Objects) -> Ref:
    if is_s3(ref.uri):
        return ref
    objects.publish(ref)
    return objects.address(ref)


def _adopted(model: Ref, objects: S3Objects) -> Ref:
    """A model, which may still lie in the folder of its session."""
    if is_s3(model.uri):
        return model
    return objects.address(objects.adopt(model, "models", MODELS.manifest))


def _initial(init: Ref, session: str, objects: S3Objects) -> Ref:
    """The folder of a model; or a file, which lies anywhere and is published with the session."""
    if not init.uri.endswith(".safetensors") or is_s3(init.uri):
        return _adopted(init, objects)
    place, name = objects.place.at(SESSIONS, session), f"init.{init.digest}.safetensors"
    if place.size(name) is None:
        place.upload(name, Path(init.uri))
    return Ref(uri=f"{place.uri}/{name}", digest=init.digest)
