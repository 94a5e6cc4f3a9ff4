"""The code of teams' networks, kept by digest, so that a release is scored by its own code.

Code is run only if a trusted record names its digest: the pipeline's folder, or the manifest of a
model that a certificate or the ledger covers.
"""

from contextlib import suppress

from pydantic import ValidationError

from ml_assets.errors import SpecError, StorageError
from ml_assets.spec.base import canonical_json
from ml_assets.spec.network_code import NetworkCode
from ml_assets.spec.training_program import ModelManifest
from ml_assets.store.objects import LocalObjects
from ml_assets.store.pipeline_context import Pipeline

_KIND = "networks"


def kept_network(pipeline: Pipeline) -> NetworkCode | None:
    """The code of the folder, kept for the models that are trained by it; None: it is ours."""
    code = pipeline.network
    if code is not None and not pipeline.objects.exists(_KIND, _name(code.digest)):
        pipeline.objects.write_bytes(canonical_json(code), _KIND, _name(code.digest))
    return code


def own_network(pipeline: Pipeline, manifest: ModelManifest) -> NetworkCode | None:
    """The code of a model that nobody has decided on yet: that of the folder, and no other.

    Raises:
        StorageError: the folder's is another one.
    """
    if manifest.code is None:
        return None
    here = pipeline.network
    if here is None or here.digest != manifest.code:
        raise StorageError(
            f"{pipeline.name}: the model is a network of code {manifest.code[:12]}, the folder has"
            f" {here.digest[:12] if here else 'none'} now: it is not loaded. Go back to that code,"
            f" or train again: ml-assets run {pipeline.name}"
        )
    return here


def certified_network(pipeline: Pipeline, manifest: ModelManifest) -> NetworkCode | None:
    """The code of a model that was decided on: the folder's, or a kept one of the same digest.

    Raises:
        StorageError: neither has this digest.
    """
    if manifest.code is None:
        return None
    with suppress(SpecError):  # the folder's cannot be read: what is kept can
        here = pipeline.network
        if here and here.digest == manifest.code:
            return here
    return network_of(pipeline.objects, manifest.code)


def bring_network(source: LocalObjects, target: LocalObjects, manifest: ModelManifest) -> None:
    """Take the code of a model along to another store."""
    if manifest.code is not None:
        code = network_of(source, manifest.code)
        target.write_bytes(canonical_json(code), _KIND, _name(code.digest))


def network_of(objects: LocalObjects, digest: str) -> NetworkCode:
    """The copy that is kept of a network's code.

    Raises:
        StorageError: there is none, or it is damaged.
    """
    try:
        code = NetworkCode.model_validate_json(objects.read_bytes(_KIND, _name(digest)))
    except (StorageError, ValidationError) as error:
        raise StorageError(
            f"The network's code {digest[:12]} is not here: the pipeline's folder has another one,"
            f" and no copy is kept ({error}). The model is not loaded; go back to that code."
        ) from error
    if code.digest != digest:
        raise StorageError(
            f"The kept code of network {digest[:12]} is damaged: its digest is {code.digest[:12]}."
            " The model is not loaded; go back to that code in the pipeline's folder."
        )
    return code


def _name(digest: str) -> str:
    return f"{digest}.json"
