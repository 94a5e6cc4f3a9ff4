"""From a request on S3 to one whose data, model and weights lie here, held to their digests."""

import shutil
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from ml_assets.errors import StorageError, StoreAway
from ml_assets.spec.program import (
    MeasureRequest,
    Ref,
    Request,
    SanityRequest,
    ScoreRequest,
    TrainRequest,
)
from ml_assets.spec.program.pod import MODEL, PREDICTIONS, RESULT
from ml_assets.store.objects import file_digest
from ml_assets.store.s3.client import S3Place
from ml_assets.store.s3.content import ARRAYS, MODELS, Kind, fetch_folder
from ml_assets.training.staging.persistence import Deadline, persist
from ml_assets.training.stop import BadData, BadRequest, NotSaved

EVENTS_FILE = "events.jsonl"
_REQUEST: TypeAdapter[Request] = TypeAdapter(Request)
RequestT = TypeVar("RequestT", TrainRequest, ScoreRequest, MeasureRequest, SanityRequest)


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
        return _REQUEST.validate_json(data)
    except ValidationError as error:
        raise BadRequest(f"{place.uri}/{name} is no request of this version: {error}") from error


def stage(request: Request, place: S3Place, scratch: Path, deadline: Deadline) -> Request:
    """The same request with what it reads and writes below ``scratch``; checkpoints stay on S3.

    Args:
        place: of the object store that the request is of: a client to share.

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
    changed: dict[str, object] = {"data": brought(request.data, ARRAYS, "data")}
    if isinstance(request, ScoreRequest):
        changed["model"] = brought(request.model, MODELS, "model")
    if isinstance(request, TrainRequest) and request.init is not None:
        changed["init"] = _weights(request.init, place, scratch, deadline)
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
    try:
        fetch_folder(place, ref.digest, kind, target)
    except StoreAway:
        raise
    except StorageError as error:
        raise BadData(str(error)) from error
    except OSError as error:
        raise _no_room(ref, target, error) from error


def _weights(init: Ref, place: S3Place, scratch: Path, deadline: Deadline) -> Ref:
    """The folder of a model, or one file."""
    if not init.uri.endswith(".safetensors"):
        target = scratch / "init"
        persist(lambda: _bring(place.elsewhere(init.uri), init, MODELS, target), deadline)
        return Ref(uri=str(target), digest=init.digest)
    file = scratch / "init.safetensors"
    folder, _, name = init.uri.rpartition("/")

    def download() -> None:
        try:
            place.elsewhere(folder).download(name, file)
        except StoreAway:
            raise
        except StorageError as error:
            raise BadData(str(error)) from error
        except OSError as error:
            raise _no_room(init, file, error) from error

    persist(download, deadline)
    if file_digest(file) != init.digest:
        raise BadData(f"{init.uri} is damaged: its checksum is not {init.digest[:12]}.")
    return Ref(uri=str(file), digest=init.digest)


def _no_room(ref: Ref, target: Path, error: OSError) -> NotSaved:
    free = shutil.disk_usage(next(p for p in target.parents if p.exists())).free
    return NotSaved(
        f"{ref.uri} could not be written to {target}: {error}. {free / 1e6:,.0f} MB are free there:"
        " raise cluster.scratch."
    )
