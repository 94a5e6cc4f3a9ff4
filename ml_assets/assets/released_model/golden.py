"""Golden vectors: rows on which a model is tried before it answers, with the expected answers.

The rows are drawn from the model's own preprocessing, so no person's row goes with a release, and
every model has them. The program that judged the model gives the expected answers.
"""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.assets.released_model.predict import feature_columns, score
from ml_assets.errors import StorageError
from ml_assets.records.loading import LoadedModel
from ml_assets.spec.program import ModelManifest
from ml_assets.store.pipeline_context import Pipeline

ROWS = 16
RELATIVE, ABSOLUTE = 1e-5, 1e-6
"""Another machine rounds float32 another way; another model is further off."""
_NEVER_SEEN = "(never seen)"


@dataclass(frozen=True)
class GoldenVectors:
    """Rows [rows, columns] and the predictions [rows, outputs] that belong to them."""

    rows: pl.DataFrame
    predictions: NDArray[np.float64]

    def require(self, model: str, found: NDArray[np.float64]) -> None:
        """Return where the predictions are the golden ones.

        Raises:
            StorageError: they are others; the first such row is named.
        """
        same = found.shape == self.predictions.shape
        near = same and np.isclose(found, self.predictions, RELATIVE, ABSOLUTE).all(axis=1)
        if np.all(near):
            return
        row = int(np.argmin(near)) if same else 0
        raise StorageError(
            f"Model {model[:12]} does not say of its golden vectors what the program that judged it"
            f" says: row {row + 1} of {len(self.rows)} is {found[row].tolist()}, expected"
            f" {self.predictions[row].tolist()}. It does not serve. Is another version of torch"
            " installed here?"
        )


def golden_vectors(pipeline: Pipeline, model: LoadedModel) -> GoldenVectors:
    """The golden vectors of a model, predicted on this machine by the program that judged it."""
    rows = golden_rows(model.manifest)
    here = replace(pipeline, settings=replace(pipeline.settings, launcher="local"))
    return GoldenVectors(rows, score(here, model, rows))


def golden_rows(manifest: ModelManifest) -> pl.DataFrame:
    """Rows [ROWS, columns] that a model of this preprocessing may meet; always the same."""
    draw = np.random.default_rng(0)
    read = manifest.preprocessing
    found: dict[str, list[float | str | None]] = {}
    for column in read.numeric:
        values = column.mean + column.std * draw.standard_normal(ROWS)
        lost = draw.random(ROWS) < 0.1  # a tenth has no value
        pairs = zip(values, lost, strict=True)
        found[column.name] = [None if gone else float(value) for value, gone in pairs]
    for column in read.categorical:
        words = [_NEVER_SEEN, *column.vocabulary]
        found[column.name] = [words[place] for place in draw.integers(len(words), size=ROWS)]
    types = {"float64": pl.Float64, "string": pl.String}
    schema = {name: types[dtype] for name, dtype in feature_columns(manifest).items()}
    return pl.DataFrame(found, schema=schema)
