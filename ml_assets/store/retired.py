"""Pipelines that a person retired: nothing of them is made again; their history stays readable."""

from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ml_assets.errors import SpecError, StorageError
from ml_assets.settings import Settings
from ml_assets.spec.base import Frozen
from ml_assets.spec.recalls import Said
from ml_assets.spec.records import Time
from ml_assets.store.objects import write_whole


class Retired(Frozen):
    """A record of who retired a pipeline, when and why."""

    author: Said
    reason: Said
    time: Time


_Documents = TypeAdapter(dict[str, Retired])


def retired(settings: Settings) -> dict[str, Retired]:
    """Pipeline -> how it was retired.

    Raises:
        StorageError: the note in the state folder cannot be read.
    """
    file = _file(settings)
    if not file.is_file():
        return {}
    try:
        return _Documents.validate_json(file.read_bytes())
    except ValidationError as error:
        raise StorageError(
            f"{file} does not say which pipelines are retired: it was changed by hand. Delete it,"
            " and retire them again: ml-assets ops forget PIPELINE"
        ) from error


def retire(settings: Settings, pipeline: str, author: str, reason: str) -> None:
    """Let nothing of a pipeline be made again."""
    now = Retired(author=author, reason=reason, time=datetime.now(UTC))
    _write(settings, {**retired(settings), pipeline: now})


def bring_back(settings: Settings, pipeline: str) -> bool:
    """Let a retired pipeline run again; False: it was none."""
    known = retired(settings)
    _write(settings, {name: one for name, one in known.items() if name != pipeline})
    return pipeline in known


def require_active(settings: Settings, pipeline: str) -> None:
    """Refuse to make anything of a retired pipeline.

    Raises:
        SpecError: it is one.
    """
    found = retired(settings).get(pipeline)
    if found is not None:
        raise SpecError(
            f"{pipeline} was retired by {found.author} on {found.time:%Y-%m-%d}: {found.reason}."
            " Its history, ledger and models can be read; nothing of it is made again. To run it"
            f" again: ml-assets ops forget {pipeline} --undo"
        )


def _write(settings: Settings, known: dict[str, Retired]) -> None:
    settings.home.mkdir(parents=True, exist_ok=True)
    write_whole(_file(settings), _Documents.dump_json(known, indent=2))


def _file(settings: Settings) -> Path:
    return settings.home / "retired.json"
