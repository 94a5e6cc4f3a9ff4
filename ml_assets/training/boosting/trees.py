"""Boosted trees as text: written by the trainer, checked and loaded for scoring.

LightGBM itself is loaded only where a boosted model is asked for.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ml_assets.spec.program import ModelManifest
from ml_assets.spec.training import INSTALL_LIGHTGBM, outputs_of
from ml_assets.training.boosting.inputs import matrix, names
from ml_assets.training.rows.arrays import Predict, Rows
from ml_assets.training.stop import BadData, NotInstalled

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


_NOT_USED = ("cffi", "dask", "graphviz", "matplotlib", "pandas", "pyarrow", "sklearn")
"""LightGBM loads these where it finds them, for interfaces that the program does not use: that is
over a second of each start."""


def require_lightgbm() -> None:
    """Load the package; importing it is then cheap and certain.

    Raises:
        NotInstalled: it is missing, or the OpenMP runtime that it needs.
    """
    try:
        with _hidden(_NOT_USED):
            import lightgbm  # noqa: F401  the first import decides what it loads beside itself
    except ImportError as error:
        raise NotInstalled(
            f"model.family is 'lightgbm', and the package cannot be imported: {error}."
            f" Install it: {INSTALL_LIGHTGBM}"
        ) from error
    except OSError as error:
        raise NotInstalled(
            f"LightGBM cannot load a system library: {error}. It needs the OpenMP runtime:"
            " apt-get install libgomp1 (Debian, Ubuntu), dnf install libgomp (Fedora),"
            " brew install libomp (macOS)"
        ) from error


@contextmanager
def _hidden(packages: tuple[str, ...]) -> Iterator[None]:
    """Inside, importing these fails as if they were not installed."""
    absent = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # pyright: ignore[reportArgumentType, reportCallIssue]  None: not importable
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
