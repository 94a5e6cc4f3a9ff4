"""Folders named by the digest of their manifest: their content, and their download from S3."""

import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from ml_assets.errors import StorageError
from ml_assets.spec.training_program import (
    SCHEMA_FILE,
    SHARD_FILE,
    SPLITS,
    File,
    ModelManifest,
    ShardFiles,
    ShardSchema,
    Split,
)
from ml_assets.store.objects import bytes_digest, inside, verify
from ml_assets.store.s3.client import S3Place

ItemT = TypeVar("ItemT")
_AT_ONCE = 8
"""Files on their way at the same time."""


@dataclass(frozen=True)
class Kind:
    """A kind of folder: its manifest, the files that it names, and the folders beside it."""

    manifest: str
    files: Callable[[bytes], Sequence[File]]
    beside: "Callable[[bytes], Sequence[str]]" = lambda _: ()
    """The digests of the folders beside it that it is of no use without."""
    kind_beside: "Kind | None" = None


def _shards(schema: bytes, splits: Sequence[Split] = SPLITS) -> list[str]:
    return [one.digest for one in ShardSchema.model_validate_json(schema).shards_of(splits)]


def _arrays(shard: bytes) -> Sequence[File]:
    return ShardFiles.model_validate_json(shard).arrays


def _all_files(shard: bytes) -> Sequence[File]:
    files = ShardFiles.model_validate_json(shard)
    return [*files.arrays, *([files.checksums] if files.checksums else []), files.table]


def _nothing(_: bytes) -> Sequence[File]:
    return ()


def _weights(manifest: bytes) -> list[File]:
    return [ModelManifest.model_validate_json(manifest).weights]


SHARD = Kind(SHARD_FILE, _all_files)
SHARDS = Kind(SCHEMA_FILE, _nothing, _shards, SHARD)
SHARDS_ALONE = Kind(SCHEMA_FILE, _nothing)
"""A training set without its shards."""
MODELS = Kind("model.json", _weights)


def arrays_of(splits: Sequence[Split]) -> Kind:
    """Return what the training program reads of some splits of a training set."""
    return Kind(SCHEMA_FILE, _nothing, partial(_shards, splits=splits), Kind(SHARD_FILE, _arrays))


def fetch_folder(place: S3Place, digest: str, kind: Kind, target: Path) -> None:
    """Bring a folder here whole, held to its digest, by rename; one that is there whole stays.

    What it needs beside it is brought first, several folders at the same time. Of a file that is
    here its size is looked at: whoever reads it holds it to its checksum.

    Raises:
        StorageError: it is lost, or is not what its digest names.
        StoreAway: nobody can tell.
    """
    known = _known(target / kind.manifest, digest)
    content = _manifest(place, digest, kind) if known is None else known
    files, beside = _named(place, kind, content)
    target.parent.mkdir(parents=True, exist_ok=True)

    def bring(other: str) -> None:
        assert kind.kind_beside is not None
        fetch_folder(_beside(place, other), other, kind.kind_beside, target.parent / other)

    each(beside, bring)  # also where the folder is there: a cache may have lost some of them
    if _is_here(target, kind, digest, files):
        return
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        _download(place, files, draft)
        (draft / kind.manifest).write_bytes(content)
        _put_in_place(draft, target, lambda: _is_here(target, kind, digest, files))
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _put_in_place(draft: Path, target: Path, is_here: Callable[[], bool]) -> None:
    """Move a folder to its place, or into that of a damaged one; what is here whole stays."""
    with suppress(OSError):
        draft.rename(target)
        return
    if is_here():  # somebody brought it at the same time
        return
    damaged = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    with suppress(FileNotFoundError):
        target.rename(damaged)
    try:
        draft.rename(target)
    except OSError:
        if not is_here():
            raise
    finally:
        shutil.rmtree(damaged, ignore_errors=True)


def _is_here(target: Path, kind: Kind, digest: str, files: Sequence[File]) -> bool:
    """Whether a folder has its manifest, and each file in its size."""
    return _known(target / kind.manifest, digest) is not None and all(
        _size(target / file.path) == file.size for file in files
    )


def _known(manifest: Path, digest: str) -> bytes | None:
    """The manifest of a folder that is here; None: it is lost, or is not what its digest names."""
    content = manifest.read_bytes() if manifest.is_file() else b""
    return content if bytes_digest(content) == digest else None


def _size(file: Path) -> int | None:
    return file.stat().st_size if file.is_file() else None


def _manifest(place: S3Place, digest: str, kind: Kind) -> bytes:
    """The manifest of a folder of the store, held to its digest."""
    content = place.read(kind.manifest)
    if content is None:
        raise StorageError(f"{place.uri}/{kind.manifest} is lost: {place.uri} was to be used.")
    if bytes_digest(content) != digest:
        raise StorageError(
            f"{place.uri}/{kind.manifest} is damaged: its checksum is"
            f" {bytes_digest(content)[:12]}, expected {digest[:12]}. Make it again."
        )
    return content


def publish_folder(
    place: S3Place, folder: Path, kind: Kind, again: timedelta = timedelta.max
) -> None:
    """Upload a whole folder, its manifest last; first what it needs beside it.

    Of a folder that is there, what is lost or of another size goes up again.

    Args:
        again: one that is there and older is marked as used again: its manifest is put anew.

    Raises:
        StorageError: the folder is not what its manifest says: nothing counts of it.
        StoreAway: it is not published.
    """
    there = {item.name: item for item in place.items()}
    manifest = there.get(kind.manifest)
    recent = manifest is not None and datetime.now(UTC) - manifest.changed <= again
    try:
        content = (folder / kind.manifest).read_bytes()
    except FileNotFoundError as error:
        if recent:
            return
        raise StorageError(
            f"{place.uri} is lost, and {folder} has no copy to put there. Make it again."
        ) from error
    files, beside = _named(place, kind, content)

    def put(other: str) -> None:
        assert kind.kind_beside is not None
        publish_folder(_beside(place, other), folder.parent / other, kind.kind_beside, again)

    if manifest is None:
        each(beside, put)
    else:
        files = [f for f in files if f.path not in there or there[f.path].size != f.size]
    verify(folder, files)
    each(files, lambda file: place.upload(file.path, inside(folder, file.path)))
    if not recent:
        place.write(kind.manifest, content)


def _beside(place: S3Place, name: str) -> S3Place:
    """The place of another folder in the same one."""
    return place.elsewhere(f"{place.uri.rpartition('/')[0]}/{name}")


def _named(place: S3Place, kind: Kind, content: bytes) -> tuple[Sequence[File], Sequence[str]]:
    try:
        return kind.files(content), kind.beside(content)
    except ValidationError as error:
        raise StorageError(
            f"{place.uri}/{kind.manifest} cannot be read: {error}. It was written by another"
            " version; make it again."
        ) from error


def _download(place: S3Place, files: Sequence[File], draft: Path) -> None:
    draft.mkdir(parents=True)
    for file in files:
        inside(draft, file.path).parent.mkdir(parents=True, exist_ok=True)
    each(files, lambda file: place.download(file.path, draft / file.path))
    try:
        verify(draft, files)
    except StorageError as error:
        raise StorageError(f"{place.uri}: {error}") from error


def each(items: Iterable[ItemT], work: Callable[[ItemT], None]) -> None:
    """Work on several files or folders at the same time; the first error of any is raised."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="s3") as pool:
        for done in [pool.submit(partial(work, item)) for item in items]:
            done.result()
