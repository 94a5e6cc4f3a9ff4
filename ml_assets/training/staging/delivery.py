"""Hands over what a pod made: model or predictions, then the result, which makes them count."""

from pathlib import Path

from pydantic import TypeAdapter

from ml_assets.errors import StorageError
from ml_assets.spec.program import Request, Result
from ml_assets.spec.program.pod import FILES, TRACE
from ml_assets.store.s3.client import S3Place
from ml_assets.store.s3.handover import put_made, put_result
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
        moved = persist(lambda: put_made(result, place), deadline)
    except StorageError as error:
        if type(error) is not StorageError:
            raise
        raise NotSaved(f"what was made was not handed over: {error}") from error
    persist(lambda: put_result(moved, place), deadline)
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
