"""The state folder: its format, its lock, and the Dagster instance inside it."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ml_assets.errors import SettingsError
from ml_assets.runs.upgrade import FORMAT, STEPS
from ml_assets.settings import Settings
from ml_assets.storage.disk import may_write, told
from ml_assets.storage.locks import exclusive
from ml_assets.storage.objects import write_whole

PACKAGE = Path(__file__).parent.parent
"""Holds ``dagster.yaml``, which the top of a checkout links to for Dagster's own commands."""
_FORMAT_FILE = "format.json"
_LOCK_FILE = "lock"


def prepare(settings: Settings) -> None:
    """Create the state folder where it is missing; bring format and configuration up to date.

    Raises:
        SettingsError: the folder cannot be made, or was written by a newer version.
        StateInUse: it is of an older format, and a command that would not know is at work.
    """
    home = settings.home
    if (home / _FORMAT_FILE).is_file() and not may_write(home):
        _format(home / _FORMAT_FILE)
        return  # a read-only copy: who only reads can use it
    try:
        settings.dagster_home.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise SettingsError(
            f"The state folder {home} cannot be made: {error.strerror} ({error.filename})."
            " Move what is in the way, or set ML_ASSETS_HOME to another folder."
        ) from error
    with told(home):
        _bring_up_to_date(settings)
        _copy_if_different(PACKAGE / "dagster.yaml", settings.dagster_home / "dagster.yaml")


@contextmanager
def lock(settings: Settings, doing: str) -> Iterator[None]:
    """Hold the state folder for one command. An OS lock: the death of the holder frees it.

    Raises:
        StateInUse: another process holds it; the message names its pid, what it does, since when.
    """
    remedy = "Wait for it to end, stop it, or set ML_ASSETS_HOME to another folder."
    with exclusive(settings.home / _LOCK_FILE, doing, remedy):
        yield


def reset(settings: Settings) -> None:
    """Delete the state folder: a clean start.

    Raises:
        SettingsError: the folder does not look like one of ours.
    """
    if not settings.home.exists():
        return
    if not (settings.home / _FORMAT_FILE).is_file():
        raise SettingsError(
            f"{settings.home} holds no {_FORMAT_FILE}: it is not a state folder of this project,"
            " so nothing was deleted. Check ML_ASSETS_HOME."
        )
    # the format goes last: a reset that was killed can be repeated
    for path in settings.home.iterdir():
        if path.name in (_FORMAT_FILE, _LOCK_FILE):
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(settings.home)


def _bring_up_to_date(settings: Settings) -> None:
    file = settings.home / _FORMAT_FILE
    if not file.exists():
        _write_format(file, FORMAT)
    elif _format(file) < FORMAT:
        with lock(settings, f"upgrade to format {FORMAT}"):
            for number in range(_format(file), FORMAT):
                STEPS[number](settings)
                _write_format(file, number + 1)


def _format(file: Path) -> int:
    """The format of a folder, which this version can read or upgrade."""
    try:
        found = json.loads(file.read_text())["format"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise SettingsError(
            f"{file} cannot be read; expected {{'format': {FORMAT}}}."
            " Restore it, or start clean: ml-assets reset"
        ) from error
    if found not in (*STEPS, FORMAT):
        raise SettingsError(
            f"The state folder {file.parent} has format {found}; this version writes {FORMAT}."
            " Use the version that wrote it, or start clean in another ML_ASSETS_HOME."
        )
    return found


def _write_format(file: Path, number: int) -> None:
    write_whole(file, json.dumps({"format": number}).encode())


def _copy_if_different(source: Path, target: Path) -> None:
    content = source.read_text()
    if not target.exists() or target.read_text() != content:
        write_whole(target, content.encode())
