"""Shards: equal rows are an equal digest, and only the training split is looked at to encode."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.training_set.encoded_set import shards_in_words
from ml_assets.assets.training_set.encoding import decode_rows, encode_rows
from ml_assets.assets.training_set.read_split import Part, SplitRows
from ml_assets.assets.training_set.shards import (
    NOTHING_KNOWN,
    Known,
    NotComparable,
    Written,
    load_schema,
    read_rows,
    write_labelled,
    write_scoring_set,
)
from ml_assets.errors import SpecError, StorageError, WindowError
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training import Mlp
from ml_assets.spec.training_program import File, ModelManifest, Ref, ShardSchema, Split
from ml_assets_tests.worlds.shards import arrays_of, shard_of, write_shards

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


def arrays(ref: Ref, split: Split) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the training program reads."""
    rows = arrays_of(ref, split)
    return rows.numeric, rows.categorical, rows.label


def test_equal_rows_are_an_equal_digest_and_writing_twice_is_safe(tmp_path: Path) -> None:
    assert write(tmp_path / "a") == write(tmp_path / "a")
    assert write(tmp_path / "a").digest == write(tmp_path / "b").digest
    ref = write(tmp_path / "a")
    named = {ref.digest, *(shard.digest for shard in load_schema(ref).shards)}
    assert {path.name for path in (tmp_path / "a").iterdir()} == named, "nothing else is left"
    assert len(named) == 3, "validation and holdout are the same rows, so they share a shard"


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
        label_scale=schema.label_scale,
        weights=File(path="w", size=0, sha256="0" * 64),
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
    assert outcome == NotComparable("1 feature is no longer in the feature set: x")


def test_what_the_network_reads_is_decoded_to_what_was_there(tmp_path: Path) -> None:
    preprocessing = load_schema(write(tmp_path / "a")).preprocessing
    frame = rows([0.0, None, 3.5], ["a", None, "b"], [True, True, True]).collect()
    decoded = decode_rows(*encode_rows(frame, preprocessing), preprocessing)
    assert decoded["c"].to_list() == ["a", None, "b"]
    assert decoded["x"].to_list() == [pytest.approx(0.0, abs=1e-6), None, pytest.approx(3.5)]
    strange = rows([1e9], ["never seen"], [True]).collect()
    clipped = decode_rows(*encode_rows(strange, preprocessing), preprocessing)
    assert clipped["x"][0] < 100 and clipped["c"].to_list() == [None]


# --- numbers and grades ---------------------------------------------------------------------------

RENT = LabelSpec(column="y", task="regression")
GRADE = LabelSpec(column="y", task="ranking", query="q")


def numbers(y: list[float | None], q: list[str] | None = None) -> pl.LazyFrame:
    known = [None] * len(y)
    frame = rows([float(i) for i in range(len(y))], ["a"] * len(y), known)  # pyright: ignore[reportArgumentType]
    return frame.with_columns(pl.Series("y", y), pl.Series("q", q or ["same"] * len(y)))


def write_as(label: LabelSpec, folder: Path, train: pl.LazyFrame, later: pl.LazyFrame) -> Ref:
    splits = {"train": train, "validation": later, "holdout": later}
    return write_shards(splits, FEATURES, label, folder)  # pyright: ignore[reportArgumentType]


def test_a_number_is_standardized_as_it_is_in_the_training_split(tmp_path: Path) -> None:
    ref = write_as(RENT, tmp_path, numbers([1e9 - 2, 1e9 + 2, None]), numbers([1e9 + 6]))
    scale = load_schema(ref).label_scale
    assert scale is not None and (scale.mean, scale.std) == (1e9, 2.0)
    assert arrays(ref, "train")[2].tolist() == [-1.0, 1.0]
    assert arrays(ref, "holdout")[2].tolist() == [3.0]
    assert load_schema(ref).label_rate == ()


def test_a_number_that_never_varies_has_a_deviation_to_divide_by(tmp_path: Path) -> None:
    scale = load_schema(write_as(RENT, tmp_path, numbers([5.0]), numbers([6.0]))).label_scale
    assert scale is not None and scale.std == 1.0


@pytest.mark.parametrize(
    ("label", "y", "said"),
    [
        (RENT, [1.0, float("nan")], "1 of 2 values are not finite"),
        (RENT, [1.0, float("inf")], "1 of 2 values are not finite"),
        (GRADE, [0.0, -1.0], "1 of 2 values are not between 0 and 32"),
        (GRADE, [0.0, 100.0], "1 of 2 values are not between 0 and 32"),
    ],
)
def test_a_number_that_cannot_be_learned_is_refused(
    tmp_path: Path, label: LabelSpec, y: list[float | None], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        write_as(label, tmp_path, numbers([0.0, 1.0]), numbers(y))


def test_text_is_no_number(tmp_path: Path) -> None:
    text = numbers([1.0]).with_columns(pl.lit("dear").alias("y"))
    with pytest.raises(SpecError, match="has type String; its task needs a number"):
        write_as(RENT, tmp_path, text, numbers([1.0]))


def test_rows_that_compete_lie_side_by_side_and_share_the_gain(tmp_path: Path) -> None:
    train = numbers([2, 0, 1, 0, 1, None], ["b", "a", "b", "c", "b", "a"])
    ref = write_as(GRADE, tmp_path, train, numbers([1.0, 1.0]))
    starts = np.load(shard_of(ref, "train") / "queries.npy")
    assert starts.tolist() == [0, 1, 4, 5]  # a, b, c
    shares = arrays(ref, "train")[2]
    assert shares.tolist() == pytest.approx([0, 3 / 5, 1 / 5, 1 / 5, 0])
    stored = read_rows(ref, load_schema(ref), "train")
    assert stored["k"].to_list() == [1, 0, 2, 4, 3], "the rows are in the order of the arrays"


def test_scoring_rows_keep_their_order(tmp_path: Path) -> None:
    train = numbers([2, 0, 1, 0], ["b", "a", "b", "c"])
    ref = write_as(GRADE, tmp_path, train, train)
    holdout = read_rows(ref, load_schema(ref), "holdout")
    again = write_scoring_set(holdout, manifest(load_schema(ref)), GRADE, tmp_path)
    assert isinstance(again, Ref)
    assert (arrays(again, "holdout")[0] == arrays(ref, "holdout")[0]).all()


def test_a_model_of_another_task_is_not_comparable(tmp_path: Path) -> None:
    schema = load_schema(write_as(RENT, tmp_path, numbers([1.0, 2.0]), numbers([1.0])))
    outcome = write_scoring_set(numbers([1.0]).collect(), manifest(schema), GRADE, tmp_path)
    assert outcome == NotComparable("it was trained to predict something else")


def test_a_set_of_another_task_says_nothing_of_scales_or_queries(tmp_path: Path) -> None:
    """What does not use a field keeps the digest that it had before the field came."""
    text = (Path(write(tmp_path).uri) / "schema.json").read_text()
    assert "label_scale" not in text and "queries" not in text


def test_a_window_of_47_partitions_moved_by_one_encodes_one_and_is_as_from_nothing(
    tmp_path: Path,
) -> None:
    weeks = [
        Part(rows([float(week), None], ["a", f"w{week % 5}"], [True, False]), f"version {week}")
        for week in range(48)
    ]

    def written(first: int, folder: str, known: Known) -> Written:
        window = weeks[first : first + 47]
        splits: dict[Split, SplitRows] = {
            "train": SplitRows(tuple(window[:33])),
            "validation": SplitRows(tuple(window[34:38])),
            "holdout": SplitRows(tuple(window[39:])),
        }
        between = SplitRows((window[33], window[38]))
        return write_labelled(
            splits, FEATURES, LABEL, tmp_path / folder, beside=between, known=known
        )

    before = written(0, "a", NOTHING_KNOWN)
    assert shards_in_words(before) == "47 shards: 47 encoded, 0 as in the set before"
    after = written(1, "a", Known(before.versions, kept=lambda _: True))
    assert shards_in_words(after) == "47 shards: 1 encoded, 46 as in the set before"
    anew = written(1, "b", NOTHING_KNOWN)
    assert (anew.encoded, anew.ref.digest) == (47, after.ref.digest)
    assert before.ref.digest != after.ref.digest
