"""A training set on disk, from rows as a feature set has them."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from ml_assets.assets.training_set.shards import labelled_rows, write_labelled
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.program import Ref, Split


def write_shards(
    splits: Mapping[Split, pl.LazyFrame], features: FeaturesSpec, label: LabelSpec, folder: Path
) -> Ref:
    """Encode the labelled rows of the splits and write them to ``folder/<digest>``."""
    return write_labelled(labelled_rows(splits, label), features, label, folder)
