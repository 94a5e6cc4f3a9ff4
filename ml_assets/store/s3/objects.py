"""The object store on S3: a local folder is its cache, and missing objects are fetched on demand.

Content-addressed folders are published by their manifest's PUT, which comes last, and fetched
whole, checked against their digest. Pages are read as they are there now. ``launch.staging`` brings
sessions. Objects that exist only locally are drafts.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ml_assets.errors import StorageError, StoreAway
from ml_assets.spec.training_program import Ref
from ml_assets.store.objects import LocalObjects, renew, stays_below, write_whole
from ml_assets.store.s3.client import S3Place
from ml_assets.store.s3.content import (
    MODELS,
    SHARD,
    SHARDS,
    SHARDS_ALONE,
    Kind,
    each,
    fetch_folder,
    publish_folder,
)

_KINDS = {"shards": SHARDS, "models": MODELS}
_PLACES = {"shards": 3, "models": 2}
"""How many names lead to a content-addressed folder."""
RENEWED = timedelta(hours=12)
"""A folder that is used again and is older there is marked so; less than any grace."""


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
        self._brought: dict[str, str] = {}
        """Small files that were brought -> the tag of what was there then."""

    # --- content-addressed folders --------------------------------------------------------------

    def address(self, ref: Ref) -> Ref:
        """The same object by its address on S3.

        Raises:
            StorageError: it lies outside of the cache.
        """
        return Ref(uri="/".join([self.place.uri, *self._inner(ref)]), digest=ref.digest)

    def publish(self, ref: Ref) -> None:
        """Upload a folder of the cache; one that is there already is marked as used again.

        Raises:
            StorageError: it lies elsewhere, or is not what its manifest says.
            StoreAway: it is not published.
        """
        inner, folder = self._inner(ref), Path(ref.uri)
        kind = SHARD if (folder / SHARD.manifest).is_file() else _kind(inner[0])
        publish_folder(self.place.at(*inner), folder, kind, RENEWED)

    def renew(self, *manifest: str) -> bool:
        """See ``LocalObjects.renew``: what lies in the bucket counts, and nothing is brought here.

        Raises:
            StoreAway: nobody can tell.
        """
        name = "/".join(manifest)
        there = next((item for item in self.place.items(name)), None)
        if there is None:
            return False
        if datetime.now(UTC) - there.changed > RENEWED:
            content = self.place.read(name)
            if content is None:  # another home's collection was first
                return False
            self.place.write(name, content)
        return True

    def adopt(self, produced: Ref, kind: str, manifest: str) -> Ref:
        """See ``LocalObjects.adopt``; it is published, too."""
        own = super().adopt(produced, kind, manifest)
        self.publish(own)
        return own

    # --- what others have -----------------------------------------------------------------------

    def here(self, *parts: str) -> Path:
        """See ``LocalObjects.here``."""
        target = self.path(*parts)
        places = _PLACES.get(parts[0])
        if places is None:
            self._bring(*parts)
        elif len(parts) >= places:
            self._fetch(parts[:places], _kind(parts[0]))
        return target

    def manifest_here(self, *parts: str) -> Path:
        """See ``LocalObjects.manifest_here``."""
        self._fetch(parts, SHARDS_ALONE)
        return self.path(*parts)

    def bring(self, data: Ref, shards: Iterable[str] | None = None) -> None:
        """See ``LocalObjects.bring``.

        Raises:
            StorageError: one is lost, or damaged, or the set lies elsewhere.
            StoreAway: nobody can tell.
        """
        *folder, _ = inner = self._inner(data)
        if shards is None:
            self._fetch(inner, SHARDS)
        else:
            each(sorted(set(shards)), lambda shard: self._fetch((*folder, shard), SHARD))

    def _fetch(self, inner: Sequence[str], kind: Kind) -> None:
        folder = self.path(*inner)
        fetch_folder(self.place.at(*inner), inner[-1], kind, folder)
        renew(folder / kind.manifest)

    def read_bytes(self, *parts: str) -> bytes:
        """See ``LocalObjects.read_bytes``."""
        self.here(*parts)
        return super().read_bytes(*parts)

    def write_bytes(self, data: bytes, *parts: str) -> Path:
        """Write an object whole, here and there."""
        target = super().write_bytes(data, *parts)
        self.place.write("/".join(parts), data)
        return target

    def delete(self, *parts: str) -> None:
        """See ``LocalObjects.delete``."""
        self.place.discard("/".join(parts))
        super().delete(*parts)

    def refresh(self, kind: str) -> None:
        """See ``LocalObjects.refresh``: what is newer there, or not here, is brought.

        Where the store is away, what is here has to do.
        """
        with suppress(StoreAway):
            for item in self.place.items(f"{kind}/"):
                if stays_below(item.name) and self._brought.get(item.name) != item.tag:
                    self._bring(item.name)
                    self._brought[item.name] = item.tag

    def exists(self, *parts: str) -> bool:
        """See ``LocalObjects.exists``."""
        return super().exists(*parts) or self.place.size("/".join(parts)) is not None

    def _bring(self, *parts: str) -> None:
        """One file as it is there now; what is here alone stays."""
        target = self.path(*parts)
        data = self.place.read("/".join(parts))
        if data is None or (target.is_file() and target.read_bytes() == data):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, data)

    def _inner(self, ref: Ref) -> tuple[str, ...]:
        """Names of folders from the root of the store to an object."""
        root, path = self.root.resolve(), Path(ref.uri).resolve()
        if path == root or not path.is_relative_to(root):
            raise StorageError(f"{path} is not an object of {self.place.uri}: it is elsewhere.")
        return path.relative_to(root).parts


def _kind(name: str) -> Kind:
    if name not in _KINDS:
        raise StorageError(f"{name!r} holds no folders that their digests name.")
    return _KINDS[name]
