"""Turns a disk's refusals (it is full, or not writable) into one sentence of ours.

Adapters that write use ``disk_errors``. For Dagster's own databases, whose errors are SQLAlchemy's,
the caller uses ``refusal``, which searches the causes of any error for the disk's answer.
"""

import errno
import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ml_assets.errors import DiskRefuses
from ml_assets.settings import state_folder

_FULL = {errno.ENOSPC, errno.EDQUOT}
_NOBODY_WRITES = {errno.EROFS}
_NOT_US = {errno.EACCES, errno.EPERM}
_OS_ERROR = re.compile(r"\(os error (\d+)\)(?:: (/.+))?")
"""What polars says of a system's refusal: its number, and the file if it names one."""
_SQLITE_FULL = ("disk is full",)
_SQLITE_WRITE_REFUSED = "readonly database"
_SQLITE_READ_ONLY = (_SQLITE_WRITE_REFUSED, "unable to open database file")
_SQLITE_UNSAID = ("disk i/o error",)
"""What SQLite says of a full disk that it met in a file that it maps."""
_LITTLE = 1 << 20
"""Bytes: with less, a database that cannot write has met a full disk."""


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Make one of our errors of what the disk of a folder refuses inside the block.

    Raises:
        DiskRefuses: it is full, or may not be written.
    """
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        if (found := refusal(error, folder)) is not None:
            raise found from error
        raise


def refusal(error: BaseException, folder: Path | None = None) -> DiskRefuses | None:
    """Return what a disk refused, looked for along the causes of an error; None: it is something
    else.

    Args:
        folder: where it was written, if the error does not say; None: the state folder.
    """
    here = folder or state_folder()
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, DiskRefuses):
            return cause
        if (number := _number(cause)) is not None:
            return _of_the_system(number, folder or _named(cause) or here)
        if isinstance(cause, sqlite3.Error):
            return _of_sqlite(str(cause), here)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return None


def scratch_in(folder: Path) -> Path | None:
    """A folder for temporary files, made; None, the machine's own, where a state is only read."""
    if folder.parent.is_dir() and not may_write(folder.parent):
        return None
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def may_write(folder: Path) -> bool:
    """Return whether files can be made in a folder that is there; its mount is asked too."""
    return os.access(folder, os.W_OK | os.X_OK)


def _number(error: BaseException) -> int | None:
    """The system's number of an error; polars tells it in the text alone."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    said = _said(error)
    return int(said[1]) if said else None


def _said(error: BaseException) -> re.Match[str] | None:
    of_polars = isinstance(error, OSError) or type(error).__module__.startswith("polars.")
    return _OS_ERROR.search(str(error)) if of_polars else None


def _of_the_system(number: int, place: Path) -> DiskRefuses | None:
    if number in _FULL:
        return _full(place)
    if number in _NOBODY_WRITES:
        return _read_only(place)
    if number in _NOT_US:
        return DiskRefuses(
            f"User {os.geteuid()} may not use {place}: {os.strerror(number)}. Run the command as"
            " the owner of the files, or give this user the right to write there."
        )
    return None


def _of_sqlite(said: str, folder: Path) -> DiskRefuses | None:
    words = said.lower()
    if any(word in words for word in _SQLITE_FULL):
        return _full(folder)
    unwritable = folder.exists() and not may_write(folder)
    if any(word in words for word in _SQLITE_READ_ONLY) and unwritable:
        return _read_only(folder)
    unsaid = (*_SQLITE_READ_ONLY, *_SQLITE_UNSAID)
    if any(word in words for word in unsaid) and free_bytes(folder) < _LITTLE:
        return _full(folder)
    if _SQLITE_WRITE_REFUSED in words:
        return DiskRefuses(
            f"A database in {folder} could not be written. A file of it is read-only, was"
            " read-only for a moment, or was taken away. What was published before is kept. See"
            " that its files can be written, and run again."
        )
    return None


def _full(place: Path) -> DiskRefuses:
    free = free_bytes(place) / 1e6
    return DiskRefuses(
        f"The disk is full: {place} could not be written, {free:,.1f} MB are free there. What was "
        "published before is kept. Delete or move something there, and run again. Once a little is"
        " free, `ml-assets ops gc` deletes what this project needs no more."
    )


def _read_only(place: Path) -> DiskRefuses:
    return DiskRefuses(
        f"{place} is read-only, and this command writes there. Commands that only read, such as"
        " status, history, verify and predict, work on it; to write, set ML_ASSETS_HOME to a"
        " folder that can be written."
    )


def free_bytes(place: Path) -> int:
    """Bytes that a user may still write on the disk of a place, which need not be there."""
    there = next((p for p in (place, *place.parents) if p.exists()), Path("/"))
    return shutil.disk_usage(there).free


def _named(error: BaseException) -> Path | None:
    """The file that an error names."""
    name = error.filename if isinstance(error, OSError) else None
    if isinstance(name, str | bytes) and name:
        return Path(os.fsdecode(name))
    said = _said(error)
    return Path(said[2]) if said and said[2] else None
