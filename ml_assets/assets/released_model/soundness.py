"""Whether a release can be used as it lies there: every use of it asks the same."""

from ml_assets.assets.released_model.released import find_release
from ml_assets.errors import MlAssetsError, NothingReleased
from ml_assets.store.pipeline_context import Pipeline


def unusable(pipeline: Pipeline) -> str | None:
    """Why the released model is refused wherever it is loaded; None where it is not, or is none."""
    try:
        find_release(pipeline)
    except NothingReleased:
        return None
    except MlAssetsError as error:
        return str(error)
    return None
