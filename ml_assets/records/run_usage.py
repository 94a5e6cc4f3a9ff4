"""What the sessions of a run used, beside the run's other records: it outlives their folders."""

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import ValidationError

from ml_assets.errors import StorageError
from ml_assets.launch.folder import SessionFolder
from ml_assets.launch.usage import session_usages
from ml_assets.records.experiments import Folder, folders
from ml_assets.spec.base import Frozen
from ml_assets.spec.canonical import canonical_json
from ml_assets.spec.usage import AttemptUsage
from ml_assets.store.objects import LocalObjects
from ml_assets.store.snapshots import MAIN, CommitId, SnapshotStore

_USAGE = re.compile(r"usage/(.+)-a(\d+)\.json")
"""``usage/<session>-a<attempt>.json`` in a run's folder: who looks for one need not read it."""


class Whose(Frozen):
    """Whose an attempt was, and what things cost then."""

    run: str
    """Dagster run id."""
    owner: str
    trigger: str
    """Who asked for the run: ``schedule``, ``sensor``, ``by hand``."""
    prices: dict[str, str]
    """As ``ML_ASSETS_PRICES`` had them; empty: none were known."""


class RunUsage(Frozen):
    """One attempt of a session that a run asked for."""

    schema_version: Literal[1] = 1
    whose: Whose
    usage: AttemptUsage


def usage_files(
    store: SnapshotStore,
    objects: LocalObjects,
    pipeline: str,
    whose: Whose,
    sessions: Sequence[str],
) -> dict[str, bytes]:
    """Files for a run's folder: the attempts of its sessions that no run has written down yet.

    Args:
        sessions: that the run asked for.
    """
    commit = store.resolve(MAIN)
    known = {key for folder in folders(store, commit, pipeline) for key in _keys(folder)}
    places = [SessionFolder(objects.path("sessions", session)) for session in sessions]
    used = [usage for place in places if place.root.is_dir() for usage in session_usages(place)]
    return {
        f"usage/{usage.session}-a{usage.attempt}.json": canonical_json(
            RunUsage(whose=whose, usage=usage)
        )
        for usage in used
        if (usage.session, usage.attempt) not in known
    }


def run_usages(store: SnapshotStore, commit: CommitId, pipeline: str) -> list[RunUsage]:
    """Those of all runs of a pipeline, oldest run first.

    Raises:
        StorageError: one cannot be read.
    """
    return [
        _read(store, commit, f"{folder.path}{name}")
        for folder in reversed(folders(store, commit, pipeline))
        for name in sorted(folder.files)
        if _USAGE.fullmatch(name)
    ]


def _keys(folder: Folder) -> set[tuple[str, int]]:
    found = filter(None, map(_USAGE.fullmatch, folder.files))
    return {(name[1], int(name[2])) for name in found}


def _read(store: SnapshotStore, commit: CommitId, path: str) -> RunUsage:
    try:
        return RunUsage.model_validate_json(store.read_bytes(commit, path))
    except ValidationError as error:
        raise StorageError(
            f"{path} at commit {commit[:12]} cannot be read: {error}. Another version wrote it."
        ) from error
