"""Bringing a state folder of an older format up to this one: step by step, each safe to repeat.

A step first copies what it is going to change to ``backup/format-<number>``; the format's number is
written after it. A kill in between repeats the step.
"""

import os
import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path

from ml_assets.errors import SettingsError
from ml_assets.settings import Settings, is_lakefs, read_signing
from ml_assets.storage.object_places import open_objects
from ml_assets.storage.refs import Refs
from ml_assets.storage.stores import has_snapshots
from ml_assets.storage.trust import PUBLIC_KEY

Step = Callable[[Settings], None]


def start_retention(settings: Settings) -> None:
    """1 -> 2: history may be cut, and every object's retention begins now.

    A version that knows nothing of grafts takes a cut history for a lost one. And format 1 did not
    mark what was used again: its times do not tell whether a thing may go.
    """
    snapshots = Path(settings.snapshots)
    if _is_embedded(settings):
        _copy_database(snapshots / "refs.db", settings.home / "backup" / "format-1")
        Refs(snapshots)  # makes the table of the grafts
    objects = open_objects(settings.objects, settings.cache)
    for pattern in _TOLD_BY:
        for path in objects.root.glob(pattern):
            os.utime(path)


def sign_history(settings: Settings) -> None:
    """2 -> 3: what is read from the snapshot store is signed.

    Raises:
        SettingsError: a key of somebody's own is to sign what nobody signed: that is for a person
            to decide, for an edited format number would lead here too.
    """
    snapshots = Path(settings.snapshots)
    if not _is_embedded(settings):
        return
    if read_signing().key is not None:
        raise SettingsError(
            f"The snapshot store {snapshots} is from before commits were signed, and"
            " ML_ASSETS_SIGNING_KEY does not vouch by itself for what it did not see. If the store"
            " is what you left, run a command once without that variable: a key of the store's own"
            f" signs it. Then add its public key to ML_ASSETS_TRUSTED_KEYS ({PUBLIC_KEY} has it)."
        )
    _copy_database(snapshots / "refs.db", settings.home / "backup" / "format-2")
    from ml_assets.storage.embedded import EmbeddedStore

    EmbeddedStore(snapshots).sign_history()


def certify_decisions(settings: Settings) -> None:
    """3 -> 4: a model is loaded by the certificate of its decision, which older ones had none of.

    What is certified is what signed commits say: an edited format number leads to nothing else.
    """
    snapshots = Path(settings.snapshots)
    if not _is_embedded(settings):
        return
    _copy_database(snapshots / "refs.db", settings.home / "backup" / "format-3")
    from ml_assets.registry.release.recertify import certify_history
    from ml_assets.storage.embedded import EmbeddedStore

    certify_history(EmbeddedStore(snapshots))


def _is_embedded(settings: Settings) -> bool:
    """Whether there is a store that older versions wrote: none of them knew of a server."""
    return not is_lakefs(settings.snapshots) and has_snapshots(settings.snapshots)


_TOLD_BY = (
    "models/*/model.json",
    "shards/*/*/schema.json",
    "sessions/*/session.json",
    "reports/*/*.html",
)
"""The files whose time tells when an object was used last."""

STEPS: dict[int, Step] = {1: start_retention, 2: sign_history, 3: certify_decisions}
"""The format that a step begins with -> the step to the next one."""
FORMAT = max(STEPS) + 1
"""What this version writes."""


def _copy_database(database: Path, folder: Path) -> None:
    """A whole copy, also of a database that is in use; a copy that is there already stays."""
    target = folder / database.name
    if target.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{database.name}.{uuid.uuid4().hex}"
    source, copy = sqlite3.connect(database), sqlite3.connect(draft)
    try:
        source.backup(copy)
    finally:
        source.close()
        copy.close()
    with draft.open("rb") as handle:
        os.fsync(handle.fileno())
    os.replace(draft, target)
