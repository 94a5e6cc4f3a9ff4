"""Shards, checkpoints, weights, events and reports: folders of files below one root.

This module loads neither polars nor a database.
"""

import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from ml_assets.errors import StorageError
from ml_assets.spec.training_program import File, Ref

TRASH = ".trash"
"""What is being deleted; whatever lies here after a kill goes with the next collection."""


class LocalObjects:
    """The object store on a local folder; one on S3 is one of these, too, whose folder is a cache.

    So who reads asks ``here``, and who has written a folder says ``publish``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, *parts: str) -> Path:
        """Return where an object lies; it need not exist.

        Raises:
            StorageError: a part is absolute, empty, or climbs out with ``..``.
        """
        for part in parts:
            if not stays_below(part):
                raise StorageError(
                    f"{part!r} is not the name of an object: it leads out of {self.root}"
                )
        return self.root.joinpath(*parts)

    def here(self, *parts: str) -> Path:
        """Return where an object lies, to be read; from a store that others share it is brought
        here.

        Raises:
            StorageError: a part leads out, or the store has no such object, or a damaged one.
        """
        return self.path(*parts)

    def manifest_here(self, *parts: str) -> Path:
        """See ``here``: of a training set its schema alone, without the shards."""
        return self.here(*parts)

    def exists(self, *parts: str) -> bool:
        """Return whether there is such a file, here or with others."""
        return self.path(*parts).is_file()

    def refresh(self, kind: str) -> None:
        """Know what others have put meanwhile below a top folder of small files."""

    def publish(self, ref: Ref) -> None:
        """A content-addressed folder was written whole: others may have it."""

    def renew(self, *manifest: str) -> bool:
        """Begin the retention of a folder again, here or with others; False: nobody has it."""
        return renew(self.path(*manifest))

    def bring(self, data: Ref, shards: Iterable[str] | None = None) -> None:
        """Bring shards of a training set here, from a store that others share.

        Args:
            data: the set, as ``own`` returned it.
            shards: their digests; None: all of them.

        Raises:
            StorageError: one is lost, or damaged.
        """

    def own(self, named: Ref, *kind: str, whole: bool = True) -> Ref:
        """Return what a record names, at its address in this store, which may have moved since.

        Args:
            whole: of a training set, bring its shards too; else see ``bring``.

        Raises:
            StorageError: the record names another place than ``<kind>/<digest>`` of a store, or a
                symbolic link lies there.
        """
        place = (*kind, named.digest)
        parts = PurePosixPath(named.uri).parts
        if parts[-len(place) :] != place or ".." in parts or "\0" in named.uri:
            raise StorageError(
                f"A record names {named.uri!r}, which is not {'/'.join(place)[:40]} of an object"
                " store: it is not followed. Make the asset again."
            )
        folder = self.here(*place) if whole else self.manifest_here(*place)
        if folder.resolve() != self.root.resolve().joinpath(*place):
            raise StorageError(f"{folder} leads somewhere else by a symbolic link.")
        return Ref(uri=str(folder), digest=named.digest)

    def folder(self, *parts: str) -> Path:
        """A folder, made where it is missing."""
        found = self.path(*parts)
        found.mkdir(parents=True, exist_ok=True)
        return found

    def write_bytes(self, data: bytes, *parts: str) -> Path:
        """Write an object whole, by rename."""
        target = self.path(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, data)
        return target

    def read_bytes(self, *parts: str) -> bytes:
        """An object's content.

        Raises:
            StorageError: there is none.
        """
        file = self.path(*parts)
        require_regular(file)
        try:
            return file.read_bytes()
        except OSError as error:
            raise StorageError(f"The object {'/'.join(parts)} cannot be read: {error}") from error

    def delete(self, *parts: str) -> None:
        """Delete one file, here and with others; nothing where there is none."""
        self.path(*parts).unlink(missing_ok=True)

    def discard(self, target: Path, still: Callable[[Path], bool]) -> bool:
        """Delete an object in one step: it is there whole, or not at all.

        Args:
            still: whether it may go, asked once more when nobody can find it any more; if somebody
                took it up again meanwhile, it is put back.
        """
        moved = self.folder(TRASH) / f"{target.name}.{uuid.uuid4().hex}"
        try:
            target.rename(moved)
        except FileNotFoundError:  # another collection was first
            return False
        if not still(moved):
            moved.rename(target)
            return False
        shutil.rmtree(moved) if moved.is_dir() else moved.unlink()
        return True

    def adopt(self, produced: Ref, kind: str, manifest: str) -> Ref:
        """Copy a folder to its content address ``<kind>/<digest>``; safe to repeat.

        What is damaged there gives way to the copy, if that is sound.

        Args:
            produced: the folder, and the SHA-256 of its manifest.
            manifest: name of the manifest in the folder.

        Raises:
            StorageError: the manifest is not the one that the digest names.
        """
        target = self.path(kind, produced.digest)
        source = Path(produced.uri)
        there = renew(target / manifest)
        if not (there and _holds(target, source)):
            _require_named(source / manifest, produced.digest)
            if not there or _is_sound(source, manifest):
                self._take(source, target)
                renew(target / manifest)
        _require_named(target / manifest, produced.digest)
        return Ref(uri=str(target), digest=produced.digest)

    def _take(self, source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        shutil.copytree(source, draft)
        for path in draft.rglob("*"):
            if path.is_file():
                make_durable(path)
        if _moved(draft, target):
            return
        if not _holds(target, source):  # else somebody adopted it at the same time
            self.discard(target, still=lambda _: True)
            if _moved(draft, target):
                return
        shutil.rmtree(draft)


def _require_named(manifest: Path, digest: str) -> None:
    found = file_digest(manifest)
    if found != digest:
        raise StorageError(
            f"{manifest} is damaged: its checksum is {found[:12]}, expected {digest[:12]}. Delete"
            " the folder and materialize the asset again."
        )


def _moved(draft: Path, target: Path) -> bool:
    """Rename a folder; False: another one is there."""
    try:
        draft.rename(target)
    except OSError:
        return False
    return True


def _is_sound(folder: Path, manifest: str) -> bool:
    """Return whether a model's weights are those that its manifest names."""
    named = json.loads((folder / manifest).read_bytes())
    weights = File.model_validate(named["weights"])
    file = inside(folder, weights.path)
    return file.is_file() and file_digest(file) == weights.sha256


def _holds(target: Path, source: Path) -> bool:
    """Return whether a folder has every file of another one, with the same content.

    Of one that is gone, or is the same one, nothing is missing.
    """
    return source.resolve() == target.resolve() or all(
        (there := target / file.relative_to(source)).is_file()
        and file_digest(there) == file_digest(file)
        for file in source.rglob("*")
        if file.is_file()
    )


def inside(folder: Path, name: str) -> Path:
    """A file that a manifest names, in the folder of the manifest; it need not exist.

    Raises:
        StorageError: the name leads out of the folder, itself or by a symbolic link, or what lies
            there is no regular file.
    """
    if not stays_below(name):
        raise StorageError(f"{name!r} is not the name of a file in {folder}: it leads out of it.")
    file = folder / name
    if file.resolve().parent != folder.resolve() / PurePosixPath(name).parent:
        raise StorageError(f"{file} is a symbolic link that leads out of its folder.")
    require_regular(file)
    return file


def require_regular(file: Path) -> None:
    """Refuse what lies at a file's place and is none: the read of a pipe may never end.

    Raises:
        StorageError: a pipe, a device, a socket or a folder lies there.
    """
    if file.exists() and not file.is_file():
        raise StorageError(f"{file} is not a regular file, and one is expected. Make it again.")


def stays_below(name: str) -> bool:
    """Return whether a relative name stays below what it is joined to, also URL-unescaped."""
    inner = PurePosixPath(name)
    plain = name and not any(sign in name for sign in "\0\\%")
    return bool(plain) and not inner.is_absolute() and ".." not in inner.parts


def write_whole(file: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file by rename: it is there whole, or not at all.

    Args:
        durable: it outlasts a power failure, which takes a moment of the disk; False: what is
            written again in a few seconds anyway.
    """
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        with draft.open("wb") as handle:
            handle.write(data)
            if durable:
                handle.flush()
                os.fsync(handle.fileno())
        os.replace(draft, file)
    except BaseException:
        with suppress(OSError):  # it may be read-only meanwhile
            draft.unlink()
        raise


def make_durable(*places: Path) -> None:
    """Let files, or the names in folders, outlast a power failure."""
    for place in places:
        handle = os.open(place, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:  # some shared file systems know no such thing of folders
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(handle)


def renew(manifest: Path) -> bool:
    """Begin the retention of a folder again, for it is used again; False where it is not there."""
    try:
        os.utime(manifest)
    except FileNotFoundError:
        return False
    return True


def bytes_digest(data: bytes) -> str:
    """SHA-256 of what was read already."""
    return hashlib.sha256(data).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file, read in chunks."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def describe(folder: Path, paths: Iterable[str]) -> tuple[File, ...]:
    """Size and checksum of files of a folder, for its manifest."""
    return tuple(
        File(path=path, size=(folder / path).stat().st_size, sha256=file_digest(folder / path))
        for path in paths
    )


def verify(folder: Path, files: Iterable[File]) -> None:
    """Hold files to their manifest.

    Raises:
        StorageError: one is missing, of another size, or of another checksum.
    """
    for file in files:
        path = folder / file.path
        if not path.is_file():
            raise StorageError(f"{path} is lost: its manifest names it.")
        found = path.stat().st_size, file_digest(path)
        if found != (file.size, file.sha256):
            raise StorageError(
                f"{path} is damaged: {found[0]} bytes with checksum {found[1][:12]}, expected"
                f" {file.size} bytes with {file.sha256[:12]}. Make it again."
            )


def is_whole(folder: Path, file: File) -> bool:
    """Return whether a file is here as its manifest has it."""
    try:
        verify(folder, [file])
    except StorageError:
        return False
    return True


def read_verified(file: File, folder: Path = Path()) -> bytes:
    """A file's content, held to its manifest: what is used are the bytes that were looked at.

    Args:
        folder: of the manifest; a path that is absolute is itself.

    Raises:
        StorageError: it is missing, of another size, or of another checksum.
    """
    path = folder / file.path
    require_regular(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path} is lost: its manifest names it.") from error
    if (len(data), bytes_digest(data)) != (file.size, file.sha256):
        raise StorageError(
            f"{path} is damaged: {len(data)} bytes with checksum {bytes_digest(data)[:12]},"
            f" expected {file.size} bytes with {file.sha256[:12]}. Make it again."
        )
    return data
