"""The state folder: its format, its lock, and the Dagster instance inside it."""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Set
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from ml_assets.errors import SettingsError, StateInUse
from ml_assets.settings import Settings
from ml_assets.store.disk import disk_errors, may_write
from ml_assets.store.objects import write_whole

PACKAGE = Path(__file__).parent.parent
"""Holds ``dagster.yaml``, which the top of a checkout links to for Dagster's own commands."""
FORMAT = 6
"""What this version reads and writes; a state of another format is made anew."""
_FORMAT_FILE = "format.json"
_LOCK_FILE = "lock"
_LAST = (_LOCK_FILE, _FORMAT_FILE)
"""The format goes last: a reset that was killed can be repeated."""
_OURS = frozenset(
    (
        *_LAST,
        "dagster",
        "data_docs",
        "data_model.db",
        "demo",
        "fresh",
        "housekeeping.lock",
        "locks",
        "mlartifacts",
        "mlflow-server.log",
        "mlflow.db",
        "mlflow_outbox",
        "objects",
        "online.db",
        "planted",
        "projected_to_mlflow",
        "retired.json",
        "scratch",
        "seen.db",
        "snapshots",
        "studies",
    )
)
"""What we put into the state folder; whatever else lies there is somebody's own."""


def prepare(settings: Settings) -> None:
    """Create the state folder where it is missing; bring Dagster's configuration up to date.

    Raises:
        SettingsError: the folder cannot be made, or is of another format.
    """
    home = settings.home
    if (home / _FORMAT_FILE).is_file() and not may_write(home):
        _require_format(settings)
        return  # a read-only copy: whoever only reads can use it
    try:
        settings.dagster_home.mkdir(parents=True, exist_ok=True)
        with disk_errors(home):
            _require_format(settings)
            _copy_if_different(PACKAGE / "dagster.yaml", settings.dagster_home / "dagster.yaml")
    except (FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise SettingsError(
            f"The state folder {home} cannot be made: {error.strerror} ({error.filename})."
            " Move what is in the way, or set ML_ASSETS_HOME to another folder."
        ) from error


@contextmanager
def lock(settings: Settings, doing: str) -> Iterator[None]:
    """Hold the state folder for one command. An OS lock: the death of the holder frees it.

    Raises:
        StateInUse: another process holds it; the message names its pid, what it does, since when.
    """
    remedy = "Wait for it to end, stop it, or set ML_ASSETS_HOME to another folder."
    with exclusive(settings.home / _LOCK_FILE, doing, remedy):
        yield


_SERVED = "Open the one that is served, stop it first, or set ML_ASSETS_HOME to another folder."


SERVED_AT = "_ML_ASSETS_SERVED_AT"
"""Where ``ml-assets ui`` says to the daemon that it starts at which address Dagster is served."""


def daemon_lock(
    dagster_home: Path, remedy: str = _SERVED, served_at: str = ""
) -> AbstractContextManager[None]:
    """Held by Dagster's daemon as long as it lives.

    Args:
        served_at: the address of its UI; empty: nobody said it.

    Raises:
        StateInUse: another process is the daemon of this folder.
    """
    who = f"Dagster's daemon{f' of {served_at}' if served_at else ''}"
    return exclusive(dagster_home / "daemon.lock", who, remedy)


def reset(settings: Settings) -> tuple[str, ...]:
    """Delete the state, for a clean start, and return what stays in its folder.

    That is what bears no name of ours, and where a link led that was deleted.

    Raises:
        SettingsError: the folder does not look like one of ours.
        StateInUse: Dagster's daemon works in it.
    """
    if not settings.home.exists():
        return ()
    if not (settings.home / _FORMAT_FILE).is_file():
        raise SettingsError(
            f"{settings.home} holds no {_FORMAT_FILE}: it is not a state folder of this project,"
            " so nothing was deleted. Check ML_ASSETS_HOME."
        )
    ours = _OURS | _chosen(settings)
    left: list[str] = []
    with daemon_lock(settings.dagster_home, "Nothing was deleted. Stop it first."):
        for path in sorted(settings.home.iterdir()):
            if not _is_ours(path.name, ours):
                left.append(str(path))
            elif path.is_symlink():
                left.append(str(path.resolve()))
                path.unlink()
            elif path.name not in _LAST:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name in _LAST:
            (settings.home / name).unlink(missing_ok=True)
    with suppress(OSError):  # something stays, or a disk is mounted there
        settings.home.rmdir()
    return tuple(left)


def _chosen(settings: Settings) -> set[str]:
    """What stores are called that the environment put into the state folder."""
    places = (settings.snapshots, settings.objects, settings.studies, settings.online)
    below = [Path(place) for place in (*places, settings.checkpoints or "")]
    inner = [path.relative_to(settings.home) for path in below if settings.home in path.parents]
    return {path.parts[0] for path in inner}


def _is_ours(name: str, ours: Set[str]) -> bool:
    """Return whether it is one of these names, a file that SQLite puts beside it, or a draft."""
    name = re.sub(r"-(wal|shm|journal)$", "", name)
    return name in ours or (name.startswith(".") and name[1:].rpartition(".")[0] in ours)


def _require_format(settings: Settings) -> None:
    file = settings.home / _FORMAT_FILE
    if not file.exists():
        write_whole(file, json.dumps({"format": FORMAT}).encode())
        return
    try:
        found = json.loads(file.read_text())["format"]
    except (ValueError, KeyError, TypeError):
        found = "none that can be read"
    if found != FORMAT:
        raise SettingsError(
            f"The state folder {settings.home} has the format {found}; this version reads and"
            f" writes format {FORMAT} alone: use the version that wrote it, or start clean:"
            " ml-assets ops reset"
        )


def _copy_if_different(source: Path, target: Path) -> None:
    content = source.read_text()
    if not target.exists() or target.read_text() != content:
        write_whole(target, content.encode())


@contextmanager
def exclusive(file: Path, doing: str, remedy: str) -> Iterator[None]:
    """Hold a lock file, with a word of who holds it and what for.

    Raises:
        StateInUse: another process holds it; the message names its pid, what it does, since when.
    """
    with disk_errors(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = file.open("a+")
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            handle.seek(0)
            who = _holder(handle.read())
            raise StateInUse(f"{file.parent} is in use by {who}. {remedy}") from error
        since = datetime.now(UTC).isoformat(timespec="seconds")
        with disk_errors(file.parent):
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
