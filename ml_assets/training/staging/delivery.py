"""Hands over what a pod made: model or predictions, then the result, which makes them count."""

from pathlib import Path

from pydantic import TypeAdapter

from ml_assets.errors import StorageError
from ml_assets.spec.canonical import canonical_json
from ml_assets.spec.program import File, Ref, Request, Result, ScoreResult, TrainResult
from ml_assets.spec.staging import FILES, MODEL, PREDICTIONS, RESULT
from ml_assets.storage.content import MODELS, publish_folder
from ml_assets.storage.s3 import S3Place
from ml_assets.training.profiling import TRACE
from ml_assets.training.staging.persistence import Deadline, persist
from ml_assets.training.stop import NotSaved, Superseded

_RESULT: TypeAdapter[Result] = TypeAdapter(Result)


def deliver(request: Request, place: S3Place, deadline: Deadline) -> bool:
    """Upload what the program left here; False: it left no result. Safe to repeat.

    Args:
        request: with the paths of this machine.
        place: of the attempt, in the store.

    Raises:
        Superseded: a newer attempt began: this one is an orphan, and nothing is uploaded.
        NotSaved: what is here is not what the result says.
        StoreAway: the store did not answer in time: nothing counts.
    """
    file = Path(request.output.result)
    trace = file.parent / TRACE
    if trace.is_file():
        persist(lambda: place.upload(FILES + TRACE, trace), deadline)
    if not file.is_file():
        return False
    persist(lambda: require_newest(place, request.attempt), deadline)
    result = _RESULT.validate_json(file.read_bytes())
    try:
        moved = persist(lambda: _upload(result, place), deadline)
    except StorageError as error:
        if type(error) is not StorageError:
            raise
        raise NotSaved(f"what was made was not handed over: {error}") from error
    # the first result stays: another one of this very attempt says the same
    persist(lambda: place.write_new(RESULT, canonical_json(moved)), deadline)
    return True


def require_newest(place: S3Place, attempt: int) -> None:
    """Nothing of an older attempt counts once a newer one has begun.

    Raises:
        Superseded: one has.
    """
    begun = place.elsewhere(place.uri.rpartition("/")[0]).folders()
    newest = max((int(name) for name in begun if name.isdigit()), default=0)
    if newest > attempt:
        raise Superseded(
            f"attempt {newest} began: attempt {attempt} is superseded, and hands nothing over"
        )


def _upload(result: Result, place: S3Place) -> Result:
    """What the result names, with its manifest last; the result as the store has it."""
    match result:
        case TrainResult():
            publish_folder(place.at(MODEL), Path(result.model.uri), MODELS)
            there = Ref(uri=f"{place.uri}/{MODEL}", digest=result.model.digest)
            return result.model_copy(update={"model": there})
        case ScoreResult():
            made = result.predictions
            place.upload(PREDICTIONS, Path(made.path))
            there = File(path=PREDICTIONS, size=made.size, sha256=made.sha256)
            return result.model_copy(update={"predictions": there})
        case _:
            return result
