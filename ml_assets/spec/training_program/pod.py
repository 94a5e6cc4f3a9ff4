"""The objects in the store between a pod and its launcher, request and result among them.

The layout below the store's address is that of a local object store; an attempt's own folder is
``sessions/<session>/attempts/<n>/``. An object is written whole or not at all, and no name is ever
written with two contents, except the heartbeats.
"""

import re
from typing import Annotated

from pydantic import AwareDatetime, ConfigDict, Field, TypeAdapter

from ml_assets.spec.base import Frozen, Positive
from ml_assets.spec.training_program import Request, Result
from ml_assets.spec.training_program.events import Heartbeat

SESSIONS = "sessions"
REQUEST = "request.json"
"""Written by the launcher before the Job; an attempt exists from here on."""
RESULT = "result.json"
"""Written by the pod, last."""
_LATER = ConfigDict(defer_build=True)
REQUESTS: TypeAdapter[Request] = TypeAdapter(Request, config=_LATER)
RESULTS: TypeAdapter[Result] = TypeAdapter(Result, config=_LATER)
MODEL = "model"
PREDICTIONS = "predictions.npy"
FILES = "files/"
"""Other files of the attempt that its events name: traces."""
TRACE = "trace.json.gz"
"""The trace of ``training.profile``, beside the events."""
EVENTS = "events/"
EVENTS_FILE = "events.jsonl"
"""Of the first rank; who else has something to say has a file of its own beside it."""
HEARTBEATS = "heartbeats/"
EXIT = "exit/"

SAVE_SECONDS = 20
"""A program has so long from the notice to stop to its end: time to save a checkpoint."""
UPLOAD_SECONDS = 25
"""After it: time to hand over the last events, the result and the termination message. A pod's own
grace has to be longer than both together."""

_EVENTS_FILE = r"events(?:\.(?:(?:rank|pod)\d{1,9}|launcher))?\.jsonl"
_CHUNK = re.compile(rf"events/({_EVENTS_FILE})/(\d{{12}})")
_HEARTBEATS = re.compile(r"heartbeats/\d{1,9}\.json")
_TERMINATION = re.compile(r"exit/(\d{1,9})\.json")


class PodHeartbeats(Frozen):
    """``heartbeats/<index>.json``: the newest sign of life of each rank of one pod."""

    beats: tuple[Heartbeat, ...] = Field(strict=False)


class TerminationMessage(Frozen):
    """``exit/<index>.json``: why a pod ended. torchrun's own code is 1 whatever happened."""

    session: str
    attempt: Positive
    index: Annotated[int, Field(ge=0)]
    host: str
    """The pod's name."""
    code: int
    """The program's true exit code; negative: the signal that ended it."""
    reason: str
    """A sentence for an operator."""
    log: str
    """The end of what it printed; empty where all went well."""
    staged_bytes: Annotated[int, Field(ge=0)] = 0
    """The bytes that the pod fetched and handed over, without its ranks' checkpoints."""
    time: Annotated[AwareDatetime, Field(strict=False)]


def attempts_of(session: str) -> str:
    """The folder of a session's attempts, from the address of the object store."""
    return f"{SESSIONS}/{session}/attempts"


def attempt_of(session: str, attempt: int) -> str:
    return f"{attempts_of(session)}/{attempt}"


def chunk_name(file: str, offset: int) -> str:
    """Whole lines of an events file, from this byte on; S3 cannot append. In order by name."""
    return f"{EVENTS}{file}/{offset:012d}"


def chunk_at(name: str) -> tuple[str, int] | None:
    """The events file and the first byte that a name is of; None: it is no chunk's name."""
    found = _CHUNK.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def is_events_file(name: str) -> bool:
    return re.fullmatch(_EVENTS_FILE, name) is not None


def heartbeats_name(index: int) -> str:
    return f"{HEARTBEATS}{index}.json"


def is_heartbeats(name: str) -> bool:
    return _HEARTBEATS.fullmatch(name) is not None


def termination_name(index: int) -> str:
    return f"{EXIT}{index}.json"


def terminated_pod(name: str) -> int | None:
    """The pod whose termination message has this name; None: it is no such name."""
    found = _TERMINATION.fullmatch(name)
    return int(found[1]) if found else None


def shell_code(code: int) -> int:
    """An exit code as a process gives it: 128 + n for signal n."""
    return code if code >= 0 else 128 - code
