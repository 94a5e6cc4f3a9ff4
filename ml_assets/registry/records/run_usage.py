"""What the sessions of a run used, beside the run's other records: it outlives their folders."""

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field, ValidationError

from ml_assets.errors import StorageError
from ml_assets.launch.folder import SessionFolder
from ml_assets.launch.usage import session_usages
from ml_assets.registry.records.experiments import Folder, folder_of, folders
from ml_assets.spec.base import Frozen
from ml_assets.spec.canonical import canonical_json, digest_of
from ml_assets.spec.usage import AttemptUsage
from ml_assets.storage.objects import LocalObjects
from ml_assets.storage.snapshots import MAIN, CommitId, SnapshotStore

USAGE = "usage/"


class RunUsage(Frozen):
    """Attempts of a run's sessions, and what things cost then."""

    schema_version: Literal[1] = 1
    pipeline: str
    run: str
    """Dagster run id."""
    owner: str
    trigger: str
    """Who asked for it: ``schedule``, ``sensor``, ``by hand``."""
    prices: dict[str, str]
    """As ``ML_ASSETS_PRICES`` had them; empty: none were known."""
    attempts: tuple[AttemptUsage, ...] = Field(strict=False)


def usage_files(
    store: SnapshotStore,
    objects: LocalObjects,
    about: RunUsage,
    sessions: Sequence[str],
) -> dict[str, bytes]:
    """A file with the attempts of a run's sessions that are not in its folder yet; none: no file.

    A session that had ended before the run began is another run's, and is left out.

    Args:
        about: the record without its attempts.
        sessions: that the run asked for.
    """
    folder = folder_of(store, about.pipeline, about.run)
    if folder is None:
        return {}
    commit = store.resolve(MAIN)
    known = {key for told in _of(store, commit, folder) for key in map(_key, told.attempts)}
    found: list[AttemptUsage] = []
    for session in sessions:
        place = objects.path("sessions", session)
        attempts = session_usages(SessionFolder(place)) if place.is_dir() else []
        if any(attempt.held.ended >= folder.begun for attempt in attempts):
            found += [attempt for attempt in attempts if _key(attempt) not in known]
    if not found:
        return {}
    record = about.model_copy(update={"attempts": tuple(found)})
    name = digest_of([_key(attempt) for attempt in found])[:16]
    return {f"{USAGE}{name}.json": canonical_json(record)}


def run_usages(store: SnapshotStore, commit: CommitId, pipeline: str) -> list[RunUsage]:
    """Those of all runs of a pipeline, oldest run first.

    Raises:
        StorageError: one cannot be read.
    """
    oldest_first = reversed(folders(store, commit, pipeline))
    return [told for folder in oldest_first for told in _of(store, commit, folder)]


def _of(store: SnapshotStore, commit: CommitId, folder: Folder) -> Iterator[RunUsage]:
    for name in sorted(name for name in folder.files if name.startswith(USAGE)):
        path = f"{folder.path}{name}"
        try:
            yield RunUsage.model_validate_json(store.read_bytes(commit, path))
        except ValidationError as error:
            raise StorageError(
                f"{path} at commit {commit[:12]} cannot be read: {error}. Another version wrote it."
            ) from error


def _key(usage: AttemptUsage) -> tuple[str, int]:
    return usage.session, usage.attempt
