"""Holding a file for one process at a time: an OS lock, which the death of the holder frees."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from ml_assets.errors import StateInUse
from ml_assets.store.disk import told


@contextmanager
def exclusive(file: Path, doing: str, remedy: str) -> Iterator[None]:
    """Hold a lock file, with a word of who holds it and what for.

    Raises:
        StateInUse: another process holds it; the message names its pid, what it does, since when.
    """
    with told(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = file.open("a+")
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            handle.seek(0)
            who = _holder(handle.read())
            raise StateInUse(
                f"The state folder {file.parent} is in use by {who}. {remedy}"
            ) from error
        since = datetime.now(UTC).isoformat(timespec="seconds")
        with told(file.parent):
            handle.truncate(0)
            handle.write(json.dumps({"pid": os.getpid(), "doing": doing, "since": since}))
            handle.flush()
        yield


def _holder(content: str) -> str:
    try:
        holder = json.loads(content)
        return f"process {holder['pid']} ({holder['doing']}, since {holder['since']})"
    except (json.JSONDecodeError, KeyError, TypeError):
        return "another process"
