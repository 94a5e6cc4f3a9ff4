"""Copies the files of a model that was made elsewhere from a permitted place, inspects them from
the outside, and keeps them by digest. Nothing of them is loaded or unpickled here."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError

from ml_assets.assets.released_model.predict import feature_columns
from ml_assets.assets.trained_model.training_job import adopt_model
from ml_assets.errors import MlAssetsError, StorageError, did_you_mean
from ml_assets.extras.api.overrides import NotAllowed
from ml_assets.extras.api.shapes import Problem
from ml_assets.records.load_release import MANIFEST, held_weights
from ml_assets.settings.access import REGISTER_FROM
from ml_assets.spec.training import LightGbm, XGBoost
from ml_assets.spec.training_program import ModelManifest, Ref
from ml_assets.store.disk import scratch_in
from ml_assets.store.objects import bytes_digest, inside, stays_below
from ml_assets.store.pipeline_context import Pipeline

FIELD = "body.artifact_uri"
_MOST_MANIFEST, _MOST_WEIGHTS = 16 << 20, 8 << 30
_CHUNK = 1 << 20


class _Unusable(MlAssetsError):
    """The files are not there, too large, or may not be read."""


def take_model(
    pipeline: Pipeline, uri: str, places: Sequence[str], wrong: Sequence[Problem]
) -> Ref:
    """Keep the model at an address in the object store, once its files are what they have to be.

    Args:
        places: folders and S3 prefixes that it has to lie below.
        wrong: what is wrong with the request besides; told with the rest.

    Raises:
        NotAllowed: it may not be taken, or does not go with the pipeline; every mistake is listed.
        StoreAway: S3 does not answer.
    """
    with tempfile.TemporaryDirectory(dir=scratch_in(pipeline.scratch)) as scratch:
        folder = Path(scratch)
        try:
            source = _source(uri, places)
            source.copy(MANIFEST, folder, _MOST_MANIFEST)
            content = (folder / MANIFEST).read_bytes()
            manifest = ModelManifest.model_validate_json(content)
            source.copy(manifest.weights.path, folder, _MOST_WEIGHTS)
        except ValidationError as error:
            raise NotAllowed([*wrong, *_of_manifest(error)]) from error
        except (_Unusable, OSError) as error:
            raise NotAllowed([*wrong, Problem(field=FIELD, said=str(error))]) from error
        said = [*_misfits(pipeline, manifest), *_wrong_weights(folder, manifest)]
        if said or wrong:
            raise NotAllowed([*wrong, *(Problem(field=FIELD, said=one) for one in said)])
        return adopt_model(pipeline.objects, Ref(uri=scratch, digest=bytes_digest(content)))


class _Folder:
    """A folder of this machine."""

    def __init__(self, path: Path, root: Path) -> None:
        self._path = path.resolve()
        if not self._path.is_relative_to(root.resolve()) or not self._path.is_dir():
            raise _Unusable(f"There is no folder {path} below {root}.")

    def copy(self, name: str, to: Path, most: int) -> None:
        file = _named(self._path, name)
        if not file.is_file() or file.is_symlink():
            raise _Unusable(f"{self._path} has no plain file {name!r}.")
        with file.open("rb") as source, (to / name).open("xb") as copy:
            taken = 0
            while chunk := source.read(_CHUNK):
                taken += len(chunk)
                _require_size(name, taken, most)
                copy.write(chunk)


class _Bucket:
    """A prefix on S3, by the credentials of this process."""

    def __init__(self, uri: str) -> None:
        from ml_assets.store.s3.client import S3Place

        self._place = S3Place(uri)

    def copy(self, name: str, to: Path, most: int) -> None:
        file = _named(to, name)
        size = self._place.size(name)
        if size is None:
            raise _Unusable(f"{self._place.uri} has no {name!r}.")
        _require_size(name, size, most)
        self._place.download(name, file)


def _source(uri: str, places: Sequence[str]) -> _Folder | _Bucket:
    if not places:
        raise _Unusable(
            f"This API registers no models, because {REGISTER_FROM} is not set where it runs. Set"
            " it to the folders, or to the s3://bucket/prefix, in which models are delivered."
        )
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise _Unusable(f"{uri[:200]!r} is not an address: {error}.") from error
    plain = unquote(parts.path) if parts.scheme == "file" else uri
    whole = plain.rstrip("/")
    for place in places:
        rest = whole.removeprefix(f"{place}/")
        if rest == whole or not stays_below(rest):
            continue
        return _Bucket(whole) if place.startswith("s3://") else _Folder(Path(whole), Path(place))
    raise _Unusable(
        f"{uri[:200]!r} is not below {' or '.join(places)}: put the model there ({REGISTER_FROM})."
    )


def _named(folder: Path, name: str) -> Path:
    if "/" in name or not stays_below(name):
        raise _Unusable(f"{MANIFEST} names weights {name[:80]!r}; expected a file beside it.")
    try:
        return inside(folder, name)
    except StorageError as error:
        raise _Unusable(str(error)) from error


def _require_size(name: str, size: int, most: int) -> None:
    if size > most:
        raise _Unusable(f"{name} is too large: expected {most:,} bytes at most.")


def _of_manifest(error: ValidationError) -> Iterator[Problem]:
    for one in error.errors(include_url=False, include_input=False):
        where = ".".join(map(str, one["loc"]))
        yield Problem(field=f"{FIELD} {MANIFEST} {where}".strip(), said=f"{one['msg']}.")


def _misfits(pipeline: Pipeline, manifest: ModelManifest) -> Iterator[str]:
    """What does not go with the pipeline that is to judge it."""
    spec = pipeline.spec
    if (manifest.task, manifest.classes) != (spec.label.task, spec.label.classes):
        of = f" of {', '.join(spec.label.classes)}" if spec.label.classes else ""
        yield f"It predicts a {manifest.task} label; {spec.name} has a {spec.label.task} one{of}."
    features = (*spec.features.numeric, *spec.features.categorical)
    for name in feature_columns(manifest):
        if name not in features:
            near = did_you_mean(name, features)
            yield (
                f"It reads {name!r}, which is not a feature of {spec.name}.{near} Train the "
                "model without it."
            )
    here = pipeline.network.digest if pipeline.network else None
    if manifest.code is not None and manifest.code != here:
        yield (
            f"It is a network of code {manifest.code[:12]}, {spec.name} has"
            f" {(here or 'none')[:12]}: code is taken from the pipeline's folder alone, which is"
            " reviewed. Put it there."
        )
    if spec.evaluation.origins is not None:
        yield (
            f"{spec.name} judges by several origins (evaluation.origins), which trains its"
            " spec once for each origin: a model that was made elsewhere cannot be judged so."
        )


def _wrong_weights(folder: Path, manifest: ModelManifest) -> Iterator[str]:
    """Safetensors, or trees as text or JSON; a pickle is none of them."""
    name, family = manifest.weights.path, manifest.model.family
    begin = (folder / name).open("rb").read(64)
    match manifest.model:
        case LightGbm():
            right, wanted = name.endswith(".txt") and begin.startswith(b"tree\n"), "its text (.txt)"
        case XGBoost():
            right = name.endswith((".ubj", ".json")) and begin.startswith(b"{")
            wanted = "its JSON or UBJSON (.json, .ubj)"
        case _:
            right, wanted = name.endswith(".safetensors"), "safetensors (.safetensors)"
    if not right:
        yield (
            f"The weights of a {family} model are {wanted}; {name!r} is something else. Nothing is"
            " unpickled: write it again in that format."
        )
        return
    try:
        held_weights(folder, manifest)
    except MlAssetsError as error:
        yield str(error).replace(f"{folder}/", "")
