"""Holding a file for one process at a time: an OS lock, which the death of the holder frees."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from ml_assets.errors import StateInUse


@contextmanager
def exclusive(file: Path, doing: str, remedy: str) -> Iterator[None]:
    """Hold a lock file, with a word of who holds it and what for.

    Raises:
        StateInUse: another process holds it; the message names its pid, what it does, since when.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            handle.seek(0)
            who = _holder(handle.read())
            raise StateInUse(
                f"The state folder {file.parent} is in use by {who}. {remedy}"
            ) from error
        handle.truncate(0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        handle.write(json.dumps({"pid": os.getpid(), "doing": doing, "since": since}))
        handle.flush()
        yield


def _holder(content: str) -> str:
    try:
        holder = json.loads(content)
        return f"process {holder['pid']} ({holder['doing']}, since {holder['since']})"
    except (json.JSONDecodeError, KeyError, TypeError):
        return "another process"
