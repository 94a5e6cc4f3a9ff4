"""Fetches a pod's inputs and hands over its outputs, both checked against digests.

First a request on S3 becomes one whose data, model and weights lie here. At the end model or
predictions are uploaded, then the result, which makes them count.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from ml_assets.errors import StorageError, StoreAway
from ml_assets.spec.training_program import (
    Ref,
    Request,
    SanityRequest,
    ScoreRequest,
    TrainRequest,
)
from ml_assets.spec.training_program.on_demand import RowsOnDemand
from ml_assets.spec.training_program.pod import (
    EVENTS_FILE,
    FILES,
    MODEL,
    PREDICTIONS,
    REQUESTS,
    RESULT,
    RESULTS,
    TRACE,
)
from ml_assets.store.disk import free_bytes
from ml_assets.store.objects import file_digest
from ml_assets.store.retries import Deadline, persist
from ml_assets.store.s3.client import S3Place
from ml_assets.store.s3.content import MODELS, Kind, arrays_of, fetch_folder
from ml_assets.store.s3.handover import put_made, put_result
from ml_assets.training.stop import BadData, BadRequest, NotSaved, Superseded


def read_request(place: S3Place, name: str, deadline: Deadline) -> Request:
    """The request of an attempt.

    Raises:
        BadRequest: it is not there, or is no request.
        StoreAway: nobody can tell.
    """
    data = persist(lambda: place.read(name), deadline)
    if data is None:
        raise BadRequest(f"{place.uri}/{name} is not there: a request was to be read.")
    try:
        return REQUESTS.validate_json(data)
    except ValidationError as error:
        raise BadRequest(f"{place.uri}/{name} is not a request of this version: {error}") from error


def stage(
    request: Request,
    place: S3Place,
    scratch: Path,
    deadline: Deadline,
    data_cache: int | None = None,
) -> Request:
    """The same request with what it reads and writes below ``scratch``; checkpoints stay on S3.

    Args:
        place: of the object store that the request is of: a client to share.
        data_cache: bytes of the disk for rows that its processes fetch themselves as they come to
            them; None: all rows are fetched now, as for a deep check, whose rows are few.

    Raises:
        BadData: something is lost, or is not what its digest names.
        NotSaved: there is no room for it.
        StoreAway: the store did not answer in time.
    """

    def brought(ref: Ref, kind: Kind, name: str) -> Ref:
        target = scratch / name
        persist(lambda: _bring(place.elsewhere(ref.uri), ref, kind, target), deadline)
        return Ref(uri=str(target), digest=ref.digest)

    folder = scratch / "attempt"
    folder.mkdir(parents=True, exist_ok=True)
    deep = isinstance(request, SanityRequest) and request.deep
    if data_cache is not None and not (deep or isinstance(request, ScoreRequest)):
        source = RowsOnDemand(
            uri=request.data.uri.rpartition("/")[0],
            scratch=str(scratch / "rows"),
            bytes=data_cache // request.world.procs,
        )
        request = request.model_copy(update={"on_demand": source})
    kind = arrays_of(request.splits)
    changed: dict[str, object] = {"data": brought(request.data, kind, "shards/set")}
    if isinstance(request, ScoreRequest):
        changed["model"] = brought(request.model, MODELS, "model")
    if isinstance(request, TrainRequest):
        if request.init is not None:
            changed["init"] = _weights(request.init, place, scratch, deadline)
        if request.teacher is not None:
            changed["teacher"] = brought(request.teacher, MODELS, "teacher")
        changed["members"] = tuple(
            brought(one, MODELS, f"members/{number}") for number, one in enumerate(request.members)
        )
    output: dict[str, object] = {
        "events": str(folder / EVENTS_FILE),
        "result": str(folder / RESULT),
    }
    if isinstance(request, TrainRequest):
        output["model"] = str(folder / MODEL)
    if isinstance(request, ScoreRequest):
        output["predictions"] = str(folder / PREDICTIONS)
    changed["output"] = request.output.model_copy(update=output)
    return request.model_copy(update=changed)


def _bring(place: S3Place, ref: Ref, kind: Kind, target: Path) -> None:
    with _fetching(ref, target):
        fetch_folder(place, ref.digest, kind, target)


def _weights(init: Ref, place: S3Place, scratch: Path, deadline: Deadline) -> Ref:
    """The folder of a model, or one file."""
    if not init.uri.endswith(".safetensors"):
        target = scratch / "init"
        persist(lambda: _bring(place.elsewhere(init.uri), init, MODELS, target), deadline)
        return Ref(uri=str(target), digest=init.digest)
    file = scratch / "init.safetensors"
    folder, _, name = init.uri.rpartition("/")

    def download() -> None:
        with _fetching(init, file):
            place.elsewhere(folder).download(name, file)

    persist(download, deadline)
    if file_digest(file) != init.digest:
        raise BadData(f"{init.uri} is damaged: its checksum is not {init.digest[:12]}.")
    return Ref(uri=str(file), digest=init.digest)


@contextmanager
def _fetching(ref: Ref, target: Path) -> Iterator[None]:
    """Tell what could not be fetched, and why."""
    try:
        yield
    except StoreAway:
        raise
    except StorageError as error:
        raise BadData(str(error)) from error
    except OSError as error:
        free = free_bytes(target.parent)
        raise NotSaved(
            f"{ref.uri} could not be written to {target}: {error}. {free / 1e6:,.0f} MB are free"
            " there: raise cluster.scratch, or set training.order: blocks and cluster.data_cache."
        ) from error


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
    result = RESULTS.validate_json(file.read_bytes())
    try:
        moved = persist(lambda: put_made(result, place), deadline)
    except StorageError as error:
        if type(error) is not StorageError:
            raise
        raise NotSaved(f"the results were not delivered: {error}") from error
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
            f"attempt {newest} began: attempt {attempt} is superseded, and delivers nothing"
        )
