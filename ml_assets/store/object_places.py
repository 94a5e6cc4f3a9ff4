"""From a location to the object store: a folder, or ``s3://bucket/prefix`` with a cache here."""

import re
import uuid
from pathlib import Path

from ml_assets.store.objects import LocalObjects
from ml_assets.store.s3.client import S3_SCHEME
from ml_assets.store.s3.objects import S3Objects

PASSING = "scratch"
"""Top folder of a store on S3 that holds stores which a command makes for itself, and deletes."""
_PASSING = re.compile(rf"/{PASSING}/[a-z]+-([0-9a-f]{{8}})")


def passing_place(objects: str, purpose: str) -> str:
    """An address in a store on S3 that nobody else has.

    Args:
        purpose: a word.
    """
    return f"{objects}/{PASSING}/{purpose}-{uuid.uuid4().hex[:8]}"


def mark_of(address: str) -> str:
    """What tells a passing store from all others; empty for a store that stays."""
    found = _PASSING.search(address)
    return found[1] if found else ""


def open_objects(location: str, cache: Path) -> LocalObjects:
    """The object store that a folder or ``s3://bucket/prefix`` names.

    Args:
        cache: folder for what was fetched of S3; a local store needs none.

    Raises:
        SettingsError: S3 is asked for, and boto3 is not installed.
    """
    if location.startswith(S3_SCHEME):
        return S3Objects(cache, location)
    return LocalObjects(Path(location))
