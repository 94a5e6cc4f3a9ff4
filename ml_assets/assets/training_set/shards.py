"""The training set on disk: memory-mapped arrays, with the preprocessing fitted on ``train`` only.

A set is a folder named by the SHA-256 of its ``schema.json``, which holds every file's checksum.
"""

import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl

from ml_assets.assets.training_set.encoding import (
    encode_labels,
    encode_rows,
    fit_label_scale,
    fit_preprocessing,
    label_rate,
    query_starts,
)
from ml_assets.errors import RowsRefused, StorageError, WindowError
from ml_assets.spec.canonical import canonical_json, digest_of
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.program import (
    SPLIT,
    File,
    LabelScale,
    ModelManifest,
    Preprocessing,
    Ref,
    Shard,
    ShardSchema,
    Split,
)
from ml_assets.store.objects import bytes_digest, describe, read_verified, renew

SCHEMA_FILE = "schema.json"


@dataclass(frozen=True)
class NotComparable:
    """Rows that a model cannot be scored on, and why."""

    reason: str


@dataclass(frozen=True)
class Fitted:
    """What was learned from a training split before any training: how rows become numbers."""

    preprocessing: Preprocessing
    label_scale: LabelScale | None


def labelled_rows(
    splits: Mapping[Split, pl.LazyFrame], label: LabelSpec
) -> dict[Split, pl.DataFrame]:
    """The rows of each split that can be trained or judged on: those without a label are left out.

    The rows of a ranking are put in the order of their queries.

    Raises:
        WindowError: a split has no labelled row.
    """
    frames: dict[Split, pl.DataFrame] = {
        name: _by_query(frame.filter(pl.col(label.column).is_not_null()), label).collect()
        for name, frame in splits.items()
    }
    empty = [name for name, frame in frames.items() if frame.is_empty()]
    if empty:
        raise WindowError(
            f"The splits {empty} have no row with a label {label.column!r}:"
            " the outcomes have not arrived yet, or the window is too short."
        )
    return frames


def write_labelled(
    frames: Mapping[Split, pl.DataFrame], features: FeaturesSpec, label: LabelSpec, folder: Path
) -> Ref:
    """Encode labelled rows and write them to ``folder/<digest>``, fitted on ``train`` alone."""
    preprocessing = fit_preprocessing(frames["train"], features)
    fitted = Fitted(preprocessing, fit_label_scale(frames["train"], label))
    return _write(frames, fitted, label, label_rate(frames["train"], label), folder)


def write_scoring_set(
    rows: pl.DataFrame, manifest: ModelManifest, label: LabelSpec, folder: Path
) -> Ref | NotComparable:
    """Encode holdout rows with a model's own preprocessing, so that it can be scored on them."""
    preprocessing = manifest.preprocessing
    wanted = [c.name for c in (*preprocessing.numeric, *preprocessing.categorical)]
    missing = [name for name in wanted if name not in rows.columns]
    if missing:
        return NotComparable(f"its features {missing} are not in the feature set any more")
    if (manifest.task, manifest.classes) != (label.task, label.classes):
        return NotComparable("it was trained to predict something else")
    fitted = Fitted(preprocessing, manifest.label_scale)
    return _write({"holdout": rows}, fitted, label, label_rate(rows, label), folder)


def write_rows_to_score(rows: pl.DataFrame, manifest: ModelManifest, folder: Path) -> Ref:
    """Encode rows whose outcome nobody knows with a model's own preprocessing.

    A label that scoring does not read stands in the place of theirs.

    Raises:
        RowsRefused: the rows lack a feature of the model.
    """
    preprocessing = manifest.preprocessing
    wanted = [c.name for c in (*preprocessing.numeric, *preprocessing.categorical)]
    missing = [name for name in wanted if name not in rows.columns]
    if missing:
        raise RowsRefused(
            f"The model reads {missing}, which the feature set does not have any more. Release a"
            " model that was trained on the features of now: ml-assets run"
        )
    query = "__query" if manifest.task == "ranking" else None
    label = LabelSpec(column="__label", task=manifest.task, classes=manifest.classes, query=query)
    # 1: of every task a label, and of a ranking a relevant one, without which it has no query
    stand_in = pl.lit(manifest.classes[0] if manifest.classes else 1.0).alias(label.column)
    together = [pl.lit(0).alias(query)] if query else []
    labelled = rows.select(*wanted, stand_in, *together)
    fitted = Fitted(preprocessing, manifest.label_scale)
    return _write({"holdout": labelled}, fitted, label, (0.0,), folder)


def load_schema(ref: Ref) -> ShardSchema:
    """The schema of a set.

    Raises:
        StorageError: it is missing, or is not the one that the digest names.
    """
    if not Path(ref.uri).is_dir():
        raise StorageError(
            f"The training set {ref.uri} is not kept any more: house-keeping removes those of"
            " passed releases by age. `ml-assets release prove` makes it again from its snapshots."
        )
    file = Path(ref.uri) / SCHEMA_FILE
    content = file.read_bytes() if file.is_file() else b""
    if bytes_digest(content) != ref.digest:
        raise StorageError(
            f"The training set {ref.uri} is missing or damaged (its {SCHEMA_FILE} should have the"
            f" checksum {ref.digest[:12]}). Delete the folder and materialize training_set again."
        )
    return ShardSchema.model_validate_json(content)


def read_rows(ref: Ref, schema: ShardSchema, split: Split) -> pl.DataFrame:
    """The rows of a split before encoding, labels included, held to the schema.

    Raises:
        StorageError: they are missing, or not what the schema names.
    """
    return pl.read_parquet(BytesIO(read_verified(schema.rows[split], Path(ref.uri))))


def scan_rows(ref: Ref, schema: ShardSchema) -> pl.LazyFrame:
    """The rows of all splits before encoding, each with its split in the column ``SPLIT``."""
    return pl.concat(
        pl.scan_parquet(Path(ref.uri) / file.path).with_columns(pl.lit(split).alias(SPLIT))
        for split, file in schema.rows.items()
    )


def _write(
    frames: Mapping[Split, pl.DataFrame],
    fitted: Fitted,
    label: LabelSpec,
    rate: tuple[float, ...],
    folder: Path,
) -> Ref:
    draft = folder / f".draft-{uuid.uuid4().hex}"
    draft.mkdir(parents=True)
    try:
        shards: dict[Split, tuple[Shard, ...]] = {}
        rows: dict[Split, File] = {}
        for name, frame in frames.items():
            shards[name] = (_write_split(draft, name, frame, fitted, label),)
            path = f"{name}/rows.parquet"
            frame.write_parquet(draft / path, compression="zstd", row_group_size=100_000)
            rows[name] = describe(draft, [path])[0]
        schema = ShardSchema(
            task=label.task,
            classes=label.classes,
            preprocessing=fitted.preprocessing,
            label_rate=rate,
            label_scale=fitted.label_scale,
            splits=shards,
            rows=rows,
        )
        (draft / SCHEMA_FILE).write_bytes(canonical_json(schema))
        return _adopt(draft, folder / digest_of(schema))
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write_split(
    draft: Path, name: Split, frame: pl.DataFrame, fitted: Fitted, label: LabelSpec
) -> Shard:
    (draft / name).mkdir()
    numeric, categorical = encode_rows(frame, fitted.preprocessing)
    labels = encode_labels(frame, label, fitted.label_scale)
    arrays = {"numeric": numeric, "categorical": categorical, "label": labels}
    if label.query:
        arrays["queries"] = query_starts(frame, label)
    for kind, array in arrays.items():
        np.save(draft / name / f"{kind}.npy", array, allow_pickle=False)
    files = describe(draft, [f"{name}/{kind}.npy" for kind in arrays])
    return Shard(rows=len(frame), **dict(zip(arrays, files, strict=True)))


def _by_query(rows: pl.LazyFrame, label: LabelSpec) -> pl.LazyFrame:
    """The rows that compete, side by side; else in the order they came."""
    return rows.sort(label.query, maintain_order=True) if label.query else rows


def _adopt(draft: Path, target: Path) -> Ref:
    for file in draft.rglob("*"):
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
    if not renew(target / SCHEMA_FILE):
        try:
            draft.rename(target)
        except OSError:  # the same set was written at the same time
            if not (target / SCHEMA_FILE).is_file():
                raise
    return Ref(uri=str(target), digest=target.name)
