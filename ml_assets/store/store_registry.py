"""Registers every snapshot store that uses an object store on S3.

House-keeping sees the records of one snapshot store, and would take another's objects for garbage.
So each leaves its name in the bucket, and with two names there nothing is deleted.
"""

import os
import uuid
from contextlib import suppress
from pathlib import Path

from ml_assets.errors import counted
from ml_assets.settings import is_lakefs, lakefs_place, read_lakefs
from ml_assets.spec.canonical import canonical_json, digest_of
from ml_assets.store.objects import LocalObjects, write_whole
from ml_assets.store.s3.objects import S3Objects

REGISTRY = "stores"
_IDENTITY = "identity"
_REGISTERED = ".registered"
"""File in the cache: what this home has registered."""


def identity_of(snapshots: str) -> str:
    """A name that no other snapshot store has; a local one is given it here."""
    if is_lakefs(snapshots):
        place = [read_lakefs().endpoint, *lakefs_place(snapshots)]
        return digest_of({"lakefs": place})[:32]
    file = Path(snapshots) / _IDENTITY
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        draft = file.with_name(f".{_IDENTITY}.{uuid.uuid4().hex}")
        draft.write_text(uuid.uuid4().hex)
        with suppress(FileExistsError):  # another process was first: its name counts
            os.link(draft, file)
        draft.unlink()
    return file.read_text().strip()


def register_store(objects: LocalObjects, snapshots: str, *, again: bool = False) -> None:
    """Say in a store on S3 that a snapshot store reaches what lies there; a local one has no other.

    Args:
        again: also where it was said before: so that others see that it is alive.

    Raises:
        StoreAway: nobody was told.
    """
    if not isinstance(objects, S3Objects):
        return
    identity, told = identity_of(snapshots), objects.root / _REGISTERED
    if not again and told.is_file() and told.read_text() == identity:
        return
    name = f"{REGISTRY}/{identity}.json"
    objects.place.write(name, canonical_json({"snapshots": snapshots}))
    told.parent.mkdir(parents=True, exist_ok=True)
    write_whole(told, identity.encode())


def other_stores(objects: S3Objects, snapshots: str) -> str:
    """Which other snapshot stores use a store on S3, and what to do; empty where none does.

    Raises:
        StoreAway: nobody can tell.
    """
    own = f"{REGISTRY}/{identity_of(snapshots)}.json"
    others = [item for item in objects.place.items(f"{REGISTRY}/") if item.name != own]
    if not others:
        return ""
    uri = objects.place.uri
    names = ", ".join(f"{uri}/{item.name} ({item.changed:%d %B %Y})" for item in others)
    return (
        f"{uri} is used from {counted(len(others), 'other snapshot store')} too, and what their"
        " records need cannot be seen from here: only scratch is deleted. Give each an address of"
        " its own (ML_ASSETS_OBJECTS), or all the same ML_ASSETS_SNAPSHOTS; of one that is no more,"
        f" delete what it wrote last: {names}"
    )
