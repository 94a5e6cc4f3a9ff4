"""The folder of a session that runs, or ran, elsewhere: brought here to be read."""

from pathlib import Path

from ml_assets.launch.folder import SessionFolder
from ml_assets.launch.staging.mirror import SessionMirror
from ml_assets.store.objects import LocalObjects
from ml_assets.store.s3.objects import S3Objects


def session_here(objects: LocalObjects, session: str) -> Path:
    """The folder of a session, with all that its pods, or other homes, told of it meanwhile.

    Raises:
        StoreAway: nobody can tell what they did.
    """
    folder = SessionFolder(objects.path("sessions", session))
    if isinstance(objects, S3Objects):
        with folder.idle() as idle:
            if idle:  # else who works on it brings what there is
                SessionMirror(folder, objects).adopt()
    return folder.root
