"""A training set on disk, from rows as a feature set has them."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.assets.training_set.read_split import Part, labelled_rows
from ml_assets.assets.training_set.shards import load_schema, write_labelled
from ml_assets.spec.base import Frozen, canonical_json, digest_of
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training_program import SCHEMA_FILE, SHARD_FILE, Ref, ShardFiles, Split
from ml_assets.store.objects import describe
from ml_assets.training.rows.arrays import Rows, SplitArrays


def write_shards(
    splits: Mapping[Split, pl.LazyFrame], features: FeaturesSpec, label: LabelSpec, folder: Path
) -> Ref:
    """Encode the labelled rows of the splits and write them to ``folder/<digest>``."""
    return write_parts({name: [rows] for name, rows in splits.items()}, features, label, folder)


def write_parts(
    splits: Mapping[Split, list[pl.LazyFrame]],
    features: FeaturesSpec,
    label: LabelSpec,
    folder: Path,
) -> Ref:
    """The same with several shards of a split."""
    parts: dict[Split, list[Part]] = {
        name: [Part(rows) for rows in frames] for name, frames in splits.items()
    }
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


def spoil(
    data: Ref, split: Split, array: str, change: Callable[[NDArray[np.generic]], None]
) -> Ref:
    """A set whose checksums are right and whose values are not: an encoder's bug."""
    folder, schema = shard_of(data, split), load_schema(data)
    files = ShardFiles.model_validate_json((folder / SHARD_FILE).read_bytes())
    file = folder / f"{array}.npy"
    values = np.load(file)
    change(values)
    np.save(file, values)
    described = {array: describe(folder, [file.name])[0]}
    other = _renamed(folder, SHARD_FILE, files.model_copy(update=described))
    first, *rest = schema.splits[split]
    shards = (first.model_copy(update={"digest": other.digest}), *rest)
    return _renamed(
        Path(data.uri),
        SCHEMA_FILE,
        schema.model_copy(update={"splits": {**schema.splits, split: shards}}),
    )


def _renamed(folder: Path, manifest: str, content: Frozen) -> Ref:
    (folder / manifest).write_bytes(canonical_json(content))
    target = folder.rename(folder.with_name(digest_of(content)))
    return Ref(uri=str(target), digest=target.name)
