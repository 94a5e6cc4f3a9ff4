"""Boosted trees as text: written by the trainer, checked and loaded for scoring."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ml_assets.spec.program import ModelManifest
from ml_assets.spec.training import outputs_of
from ml_assets.training.boosting.library import require_lightgbm
from ml_assets.training.boosting.matrix import matrix, names
from ml_assets.training.rows.arrays import Predict, Rows
from ml_assets.training.stop import BadData

if TYPE_CHECKING:
    from lightgbm import Booster

_END = "end of trees\n"


def trees_as_text(booster: "Booster") -> str:
    """All trees in LightGBM's text format, without the parameters that it adds."""
    text = booster.model_to_string(num_iteration=-1)
    return text[: text.index(_END) + len(_END)]


def load_trees(file: Path) -> "Booster":
    """The trees of a verified file.

    Raises:
        BadData: it is not whole, or not LightGBM's text format.
    """
    from lightgbm import Booster
    from lightgbm.basic import LightGBMError

    text = file.read_text()
    if not text.startswith("tree\nversion=") or not text.endswith(_END):
        raise BadData(f"{file} is no whole model in LightGBM's text format.")
    try:
        return Booster(model_str=text)
    except LightGBMError as error:
        raise BadData(f"{file} cannot be read by LightGBM: {error}") from error


def load_predictor(folder: Path, manifest: ModelManifest, threads: int) -> Predict:
    """The trees of a verified folder, ready to score.

    Raises:
        NotInstalled: LightGBM cannot be loaded here.
        BadData: the trees are not about what the manifest says.
    """
    require_lightgbm()
    booster = load_trees(folder / manifest.weights.path)
    expected = names(manifest.preprocessing)
    if booster.feature_name() != expected:
        raise BadData(
            f"The trees of {folder} are about {booster.feature_name()[:5]}..., its manifest names"
            f" {expected[:5]}..."
        )
    outputs = outputs_of(manifest.task, manifest.classes)

    def predict(rows: Rows) -> NDArray[np.float64]:
        values = matrix(rows, manifest.preprocessing)
        found = np.asarray(booster.predict(values, num_threads=threads), dtype=np.float64)
        return found.reshape(len(values), outputs)

    return predict
