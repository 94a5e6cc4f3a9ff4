"""Finds the release of a pipeline: the one in the ledger, checked against its certificate and
digest."""

from ml_assets.errors import MlAssetsError, NothingReleased
from ml_assets.records.loading import LoadedRelease, load_release
from ml_assets.store.pipeline_context import Pipeline


def find_release(pipeline: Pipeline) -> LoadedRelease:
    """The model in the stage that the pipeline releases to.

    Raises:
        NothingReleased: the ledger names none.
        EvidenceError: its decision or certificate does not hold.
        StorageError: its files are not what its digest names.
    """
    return load_release(pipeline.store, pipeline.objects, pipeline.name, pipeline.spec.release.to)


def refusal_since(release: LoadedRelease) -> str:
    """What a person is told where a later decision would not let a release through; else empty."""
    since = release.refused_since
    if since is None:
        return ""
    return (
        f"model {release.entry.model[:12]} was refused since it was released (ledger line"
        f" {since.seq}: {since.reason}). It stays until another one is released."
    )


def unusable(pipeline: Pipeline) -> str | None:
    """Why the released model is refused wherever it is loaded; None where it is not, or is none."""
    try:
        find_release(pipeline)
    except NothingReleased:
        return None
    except MlAssetsError as error:
        return str(error)
    return None
