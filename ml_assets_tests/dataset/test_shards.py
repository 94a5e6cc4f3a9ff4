"""Shards: equal rows are an equal digest, and only the training split is looked at to encode."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ml_assets.dataset.encoding import decode_rows, encode_rows
from ml_assets.dataset.shards import NotComparable, load_schema, write_scoring_set, write_shards
from ml_assets.errors import SpecError, StorageError, WindowError
from ml_assets.spec.pipeline import FeaturesSpec, LabelSpec
from ml_assets.spec.program import File, ModelManifest, Ref, ShardSchema
from ml_assets.spec.training import Mlp

FEATURES = FeaturesSpec(
    function="f.py:b", key=("k",), decision_at="at", numeric=("x",), categorical=("c",)
)
LABEL = LabelSpec(column="y", task="binary")


def rows(x: list[float | None], c: list[str | None], y: list[bool | None]) -> pl.LazyFrame:
    at = [datetime(2024, 1, 1, tzinfo=UTC)] * len(x)
    return pl.LazyFrame({"k": range(len(x)), "at": at, "x": x, "c": c, "y": y})


TRAIN = rows([0.0, 2.0, None, 4.0], ["a", "b", None, "a"], [True, False, False, None])
LATER = rows([100.0, -1.0], ["z", "b"], [True, False])


def write(folder: Path, train: pl.LazyFrame = TRAIN, later: pl.LazyFrame = LATER) -> Ref:
    splits = {"train": train, "validation": later, "holdout": later}
    return write_shards(splits, FEATURES, LABEL, folder)  # pyright: ignore[reportArgumentType]


def arrays(ref: Ref, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    names = ("numeric", "categorical", "label")
    numeric, categorical, label = (np.load(Path(ref.uri) / split / f"{n}.npy") for n in names)
    return numeric, categorical, label


def test_equal_rows_are_an_equal_digest_and_writing_twice_is_safe(tmp_path: Path) -> None:
    assert write(tmp_path / "a") == write(tmp_path / "a")
    assert write(tmp_path / "a").digest == write(tmp_path / "b").digest
    assert [path.name for path in (tmp_path / "a").iterdir()] == [write(tmp_path / "a").digest]


def test_what_comes_later_does_not_change_the_encoding(tmp_path: Path) -> None:
    first = load_schema(write(tmp_path / "a"))
    other = load_schema(write(tmp_path / "b", later=rows([1e9, None], ["q", "q"], [True, True])))
    assert first.preprocessing == other.preprocessing


def test_nulls_unknown_words_and_missing_labels(tmp_path: Path) -> None:
    ref = write(tmp_path)
    numeric, categorical, label = arrays(ref, "train")
    assert len(label) == 3  # the row without a label is not trained on
    assert numeric[2].tolist() == [0.0, 1.0]  # a null is 0, and flagged
    assert categorical[:, 0].tolist() == [1, 2, 0]
    numeric, categorical, _ = arrays(ref, "holdout")
    assert categorical[:, 0].tolist() == [0, 2]  # a word never seen is 0
    assert numeric[0, 0] == 8.0  # clipped


def test_a_split_without_labels_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(WindowError, match="holdout"):
        write(tmp_path, later=rows([1.0], ["a"], [None]))


def test_a_label_that_is_neither_true_nor_false_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="expected true and false"):
        write(tmp_path, train=TRAIN.with_columns(pl.lit(7).alias("y")))


def test_a_damaged_schema_is_refused(tmp_path: Path) -> None:
    ref = write(tmp_path)
    file = Path(ref.uri) / "schema.json"
    file.write_text(file.read_text().replace("0", "1", 1))
    with pytest.raises(StorageError, match="missing or damaged"):
        load_schema(ref)


def manifest(schema: ShardSchema) -> ModelManifest:
    return ModelManifest(
        model=Mlp(family="mlp"),
        task=schema.task,
        classes=schema.classes,
        preprocessing=schema.preprocessing,
        weights=File(path="w", size=0, sha256="0" * 64),
        session="s",
        step=1,
    )


def test_a_champion_is_scored_with_its_own_encoding(tmp_path: Path) -> None:
    schema = load_schema(write(tmp_path))
    ref = write_scoring_set(LATER.collect(), manifest(schema), LABEL, tmp_path)
    assert isinstance(ref, Ref)
    expected, _ = encode_rows(LATER.collect(), schema.preprocessing)
    assert (arrays(ref, "holdout")[0] == expected).all()


def test_a_champion_whose_features_are_gone_is_not_comparable(tmp_path: Path) -> None:
    schema = load_schema(write(tmp_path))
    outcome = write_scoring_set(LATER.drop("x").collect(), manifest(schema), LABEL, tmp_path)
    assert outcome == NotComparable("its features ['x'] are not in the feature set any more")


def test_what_the_network_reads_is_decoded_to_what_was_there(tmp_path: Path) -> None:
    preprocessing = load_schema(write(tmp_path / "a")).preprocessing
    frame = rows([0.0, None, 3.5], ["a", None, "b"], [True, True, True]).collect()
    decoded = decode_rows(*encode_rows(frame, preprocessing), preprocessing)
    assert decoded["c"].to_list() == ["a", None, "b"]
    assert decoded["x"].to_list() == [pytest.approx(0.0, abs=1e-6), None, pytest.approx(3.5)]
    strange = rows([1e9], ["never seen"], [True]).collect()
    clipped = decode_rows(*encode_rows(strange, preprocessing), preprocessing)
    assert clipped["x"][0] < 100 and clipped["c"].to_list() == [None]
