"""A row for each image, and the numbers in its file."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from ml_assets.spec.window import Window


def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    """One row for each image; ``path`` and ``etag`` say which file ``pixels`` is given."""
    return tables["images"]


def pixels(files: list[bytes]) -> np.ndarray:
    """[n, 64] from 0 to 1: behind the header of a PGM file lie 8 rows of 8 bytes."""
    return np.stack([np.frombuffer(file, np.uint8)[-64:] for file in files]) / 16
