"""The object store on S3: a local folder is its cache, and what others have is fetched when asked.

Content-addressed folders are published by their manifest's PUT, which comes last; they are fetched
whole, held to their digest. What is local alone is a draft.
"""

from pathlib import Path

from ml_assets.errors import StorageError
from ml_assets.spec.program import Ref
from ml_assets.storage.content import MODELS, SHARDS, Kind, fetch_folder, publish_folder
from ml_assets.storage.objects import LocalObjects
from ml_assets.storage.s3 import S3Place

_KINDS = {"shards": SHARDS, "models": MODELS}


class S3Objects(LocalObjects):
    """The object store below ``s3://bucket/prefix``.

    Args:
        root: the cache, a folder of this machine; it may be deleted at any time.
        uri: the address.

    Raises:
        SettingsError: boto3 is not installed, or the address names no bucket.
    """

    def __init__(self, root: Path, uri: str) -> None:
        super().__init__(root)
        self.place = S3Place(uri)

    def address(self, ref: Ref) -> Ref:
        """The same object by its address on S3.

        Raises:
            StorageError: it lies outside of the cache.
        """
        return Ref(uri="/".join([self.place.uri, *self._inner(ref)]), digest=ref.digest)

    def publish(self, ref: Ref) -> Ref:
        """Upload a content-addressed folder of the cache; nothing where it is there already.

        Returns:
            Its address on S3.
        """
        inner = self._inner(ref)
        publish_folder(self.place.at(*inner), Path(ref.uri), _kind(inner[0]))
        return self.address(ref)

    def fetch(self, digest: str, *kind: str) -> Path:
        """A content-addressed folder, here from now on."""
        target = self.path(*kind, digest)
        fetch_folder(self.place.at(*kind, digest), digest, _kind(kind[0]), target)
        return target

    def _inner(self, ref: Ref) -> tuple[str, ...]:
        """Names of folders from the root of the store to an object."""
        root, path = self.root.resolve(), Path(ref.uri).resolve()
        if path == root or not path.is_relative_to(root):
            raise StorageError(f"{path} is no object of {self.place.uri}: it lies elsewhere.")
        return path.relative_to(root).parts


def _kind(name: str) -> Kind:
    if name not in _KINDS:
        raise StorageError(f"{name!r} holds no folders that their digests name.")
    return _KINDS[name]
