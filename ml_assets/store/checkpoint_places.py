"""From an address to the adapter: a folder, or ``s3://bucket/prefix``."""

from pathlib import Path

from ml_assets.store.checkpoints import CheckpointStore, Lying
from ml_assets.store.local_checkpoints import LocalCheckpoints, discard_folder, lying_in
from ml_assets.store.s3.checkpoints import S3Checkpoints, discard_below, lying_below
from ml_assets.store.s3.client import S3_SCHEME


def open_checkpoints(uri: str, scratch: Path | None = None) -> CheckpointStore:
    """The store that a folder or ``s3://bucket/prefix`` names.

    Args:
        scratch: folder for what is on its way to or from S3; None: nothing is written or fetched.

    Raises:
        SettingsError: S3 is asked for, and boto3 is not installed.
    """
    if uri.startswith(S3_SCHEME):
        return S3Checkpoints(uri, scratch)
    return LocalCheckpoints(Path(uri))


def lying_at(uri: str) -> Lying | None:
    """What a session's checkpoints take; None: there are none."""
    return lying_below(uri) if uri.startswith(S3_SCHEME) else lying_in(Path(uri))


def discard_all(uri: str) -> None:
    """Delete a session's checkpoints, manifests first: what is half deleted is not whole."""
    if uri.startswith(S3_SCHEME):
        discard_below(uri)
    else:
        discard_folder(Path(uri))
