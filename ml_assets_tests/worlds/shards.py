"""A training set on disk, from rows as a feature set has them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from ml_assets.assets.training_set.shards import labelled_rows, load_schema, write_labelled
from ml_assets.assets.training_set.split_rows import Part
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.program import Ref, Split
from ml_assets.training.rows.arrays import Rows, SplitArrays


def write_shards(
    splits: Mapping[Split, pl.LazyFrame], features: FeaturesSpec, label: LabelSpec, folder: Path
) -> Ref:
    """Encode the labelled rows of the splits and write them to ``folder/<digest>``."""
    parts = {name: [Part(rows)] for name, rows in splits.items()}
    return write_labelled(labelled_rows(parts, label), features, label, folder).ref


def shard_of(data: Ref, split: Split, number: int = 0) -> Path:
    """The folder of a shard of a set."""
    shard = load_schema(data).splits[split][number]
    return Path(data.uri).parent / shard.digest


def arrays_of(data: Ref, split: Split) -> Rows:
    """The rows of a split as the training program reads them."""
    return SplitArrays(Path(data.uri), load_schema(data), split).take(
        np.arange(sum(shard.rows for shard in load_schema(data).splits[split]))
    )
