"""From a location to the object store: a folder, or ``s3://bucket/prefix`` with a cache here."""

from pathlib import Path

from ml_assets.storage.objects import LocalObjects
from ml_assets.storage.s3 import S3_SCHEME
from ml_assets.storage.s3_objects import S3Objects


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
