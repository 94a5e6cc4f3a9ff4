"""A release's network as MLflow's own server loads it: rows by column name in, predictions out."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ml_assets.assets.training_set.encoding import encode_rows
from ml_assets.spec.training_program import ModelManifest
from ml_assets.training.rows.arrays import Rows
from ml_assets.training.score import load_predictor

if TYPE_CHECKING:
    import pandas as pd


class Network:
    """What MLflow calls a model."""

    def __init__(self, folder: Path) -> None:
        self._manifest = ModelManifest.model_validate_json((folder / "model.json").read_bytes())
        self._predict = load_predictor(folder, self._manifest, threads=1)

    def predict(self, frame: "pd.DataFrame") -> np.ndarray:
        """Predictions [rows, outputs]."""
        numeric, words = encode_rows(pl.from_pandas(frame), self._manifest.preprocessing)
        return self._predict(Rows(numeric, words, np.zeros(len(numeric), np.float32)))


def _load_pyfunc(folder: str) -> Network:
    return Network(Path(folder))
