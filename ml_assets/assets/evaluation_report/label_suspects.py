"""The label suspects that were kept with a pipeline's newest report."""

import polars as pl

from ml_assets.assets.evaluation_report.suspects import has_suspects
from ml_assets.errors import StorageError
from ml_assets.store.pipeline_context import Pipeline, PipelineState

SUSPECTS_FILE = "suspects.parquet"


def read_suspects(state: PipelineState) -> pl.DataFrame | None:
    """The rows, the highest loss first; None where the report has none."""
    file = state.address("evaluation_report").file(SUSPECTS_FILE)
    if not state.exists(file):
        return None
    found = state.store.scan(state.commit, file).collect()
    return found.sort(found.columns[-1], descending=True, maintain_order=True)


def suspects(pipeline: Pipeline) -> pl.DataFrame:
    """The same of a pipeline.

    Raises:
        StorageError: there are none, and why.
    """
    found = read_suspects(pipeline.now())
    if found is None and not has_suspects(pipeline.spec):
        raise StorageError(
            f"{pipeline.name} has no label suspects: in a ranking a row has no loss of its own."
        )
    if found is None:
        raise StorageError(
            f"{pipeline.name} has no label suspects yet, or its report was made by an older"
            f" version. Run: ml-assets run {pipeline.name}"
        )
    return found
