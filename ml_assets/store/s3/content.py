"""Folders named by the digest of their manifest: what they hold, and how they come from S3."""

import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from ml_assets.errors import StorageError
from ml_assets.spec.program import File, ModelManifest, ShardSchema
from ml_assets.store.objects import bytes_digest, inside, verify
from ml_assets.store.s3.client import S3Place

_AT_ONCE = 8
"""Files on their way at the same time."""


@dataclass(frozen=True)
class Kind:
    """A kind of folder: its manifest, and the files that the manifest names."""

    manifest: str
    files: Callable[[bytes], Sequence[File]]


def _arrays(schema: bytes) -> list[File]:
    shards = [s for split in ShardSchema.model_validate_json(schema).splits.values() for s in split]
    named = [(s.numeric, s.categorical, s.label, s.queries) for s in shards]
    return [file for files in named for file in files if file is not None]


def _arrays_and_rows(schema: bytes) -> list[File]:
    return [*_arrays(schema), *ShardSchema.model_validate_json(schema).rows.values()]


def _weights(manifest: bytes) -> list[File]:
    return [ModelManifest.model_validate_json(manifest).weights]


SHARDS = Kind("schema.json", _arrays_and_rows)
ARRAYS = Kind("schema.json", _arrays)
"""What the training program reads of a training set."""
MODELS = Kind("model.json", _weights)


def fetch_folder(place: S3Place, digest: str, kind: Kind, target: Path) -> None:
    """Bring a folder here whole, held to its digest, by rename; one that is there stays.

    Raises:
        StorageError: it is lost, or is not what its digest names.
        StoreAway: nobody can tell.
    """
    if target.is_dir():
        return
    content = place.read(kind.manifest)
    if content is None:
        raise StorageError(f"{place.uri}/{kind.manifest} is lost: {place.uri} was to be used.")
    if bytes_digest(content) != digest:
        raise StorageError(
            f"{place.uri}/{kind.manifest} is damaged: its checksum is"
            f" {bytes_digest(content)[:12]}, expected {digest[:12]}. Make it again."
        )
    files = _named(place, kind, content)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        _download(place, files, draft)
        (draft / kind.manifest).write_bytes(content)
        draft.rename(target)
    except OSError:
        if not target.is_dir():  # else somebody brought it at the same time: the same content
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def publish_folder(place: S3Place, folder: Path, kind: Kind) -> None:
    """Upload a whole folder, its manifest last; nothing where that is there already.

    Raises:
        StorageError: the folder is not what its manifest says: nothing counts of it.
        StoreAway: it is not published.
    """
    if place.size(kind.manifest) is not None:
        return
    content = (folder / kind.manifest).read_bytes()
    files = _named(place, kind, content)
    verify(folder, files)
    each(files, lambda file: place.upload(file.path, inside(folder, file.path)))
    place.write(kind.manifest, content)


def _named(place: S3Place, kind: Kind, content: bytes) -> Sequence[File]:
    try:
        return kind.files(content)
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


def each(files: Iterable[File], work: Callable[[File], None]) -> None:
    """Work on several files at the same time; the first error of any is raised."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="s3") as pool:
        for done in [pool.submit(partial(work, file)) for file in files]:
            done.result()
