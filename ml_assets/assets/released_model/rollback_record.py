"""Updates the record and the materialization of a release after a rollback, so they name the model
in use."""

from ml_assets.adapters.declared import Materialization, materialization
from ml_assets.assets.released_model.page import show_release
from ml_assets.assets.released_model.rollback import Returned
from ml_assets.store.pipeline_context import Pipeline


def rolled_back(pipeline: Pipeline, returned: Returned, run: str = "") -> Materialization:
    """Publish the record, and what Dagster is to be told.

    Raises:
        StorageError: another run published the record at the same time.
    """
    stage = pipeline.spec.release.shown_by
    shown = show_release(pipeline.at(returned.origin.commit), returned.entry, run, stage)
    about = f"Rolled back by {returned.entry.author}: {returned.entry.reason}"
    return materialization(pipeline, stage, shown.data_version, shown.metadata, about)
