"""Entities on one side of a split: nobody is trained on and judged on."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ml_assets.assets.training_set.entities import keep_entities_apart, stratified_group_split
from ml_assets.assets.training_set.read_split import Part, SplitRows
from ml_assets.errors import WindowError
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.split import StratifiedGroupSplit, TimeGroupSplit
from ml_assets.spec.training import Task

SPEC = StratifiedGroupSplit(kind="stratified_group", groups=("g",), validation=0.2, holdout=0.2)
BINARY = LabelSpec(column="y", task="binary")


def by_time(keep: str) -> TimeGroupSplit:
    return TimeGroupSplit.model_validate(
        {
            "kind": "time+group",
            "groups": ("g",),
            "keep": keep,
            "train": 3,
            "validation": 1,
            "holdout": 1,
        }
    )


def rows(*groups: str | None) -> SplitRows:
    """A row for each group, in parts of two rows."""
    frame = pl.DataFrame({"g": pl.Series(groups, dtype=pl.String)}).with_row_index("k")
    return SplitRows(tuple(Part(frame[n : n + 2].lazy(), str(n)) for n in range(0, len(frame), 2)))


SPANNING = {
    "train": rows("a", "b", None),
    "validation": rows("b", "c", None),
    "holdout": rows("a", "c", "d", None),
}


@pytest.mark.parametrize(
    ("keep", "train", "validation", "holdout"),
    [
        ("first", ["a", "b", None], ["c", None], ["d", None]),
        ("last", ["b", None], ["b", None], ["a", "c", "d", None]),
    ],
)
def test_rows_of_an_entity_that_spans_splits_stay_in_one(
    keep: str, train: list[str], validation: list[str], holdout: list[str]
) -> None:
    if keep == "last":  # b is last seen in validation
        train = [None]  # pyright: ignore[reportAssignmentType]
    kept = keep_entities_apart(SPANNING, by_time(keep))  # pyright: ignore[reportArgumentType]
    assert kept["train"].column("g").to_list() == train
    assert kept["validation"].column("g").to_list() == validation
    assert kept["holdout"].column("g").to_list() == holdout
    whole = kept["train" if keep == "first" else "holdout"]
    for rows in kept.values():
        named = [part.source is not None for part in rows.parts]
        assert all(named) if rows is whole else not any(named), "other rows than a version's"


def test_a_split_that_is_emptied_says_by_whom() -> None:
    regulars = {name: rows("a", "b") for name in ("train", "validation", "holdout")}
    with pytest.raises(WindowError, match=r"No row is left in validation: .* train keeps"):
        keep_entities_apart(regulars, by_time("first"))  # pyright: ignore[reportArgumentType]
    with pytest.raises(WindowError, match=r"No row is left in validation: .* holdout keeps"):
        keep_entities_apart(regulars, by_time("last"))  # pyright: ignore[reportArgumentType]


def table(groups: int, seed: int) -> pl.DataFrame:
    """Entities of 1 to 20 rows; one in ten has the label nine times in ten, the others rarely."""
    draw = np.random.default_rng(seed)
    of = np.repeat(np.arange(groups), draw.integers(1, 21, groups))
    rate = np.where(of % 10 == 0, 0.9, 0.05)
    return pl.DataFrame(
        {"g": [f"p{n}" for n in of], "k": range(len(of)), "y": draw.random(len(of)) < rate}
    )


def test_every_side_has_its_share_of_rows_and_of_labels() -> None:
    frame = table(400, 1).with_columns(split=pl.lit(""))
    frame = frame.with_columns(stratified_group_split(frame, ["k"], BINARY, SPEC, 0).alias("split"))
    sides = (
        frame.group_by("split").agg(pl.len(), pl.col("y").mean()).rows_by_key("split", named=True)
    )
    for name, share in (("train", 0.6), ("validation", 0.2), ("holdout", 0.2)):
        assert sides[name][0]["len"] / len(frame) == pytest.approx(share, abs=0.005)
        assert sides[name][0]["y"] == pytest.approx(frame["y"].mean(), abs=0.005)
    assert frame.group_by("g").agg(pl.col("split").n_unique())["split"].max() == 1


def test_the_order_of_the_rows_does_not_matter_and_the_seed_does() -> None:
    frame = table(120, 2)
    first = frame.with_columns(stratified_group_split(frame, ["k"], BINARY, SPEC, 0).alias("split"))
    mixed = frame.sample(fraction=1.0, shuffle=True, seed=5)
    again = mixed.with_columns(stratified_group_split(mixed, ["k"], BINARY, SPEC, 0).alias("split"))
    assert first.equals(again.sort("k").select(first.columns))
    other = stratified_group_split(frame, ["k"], BINARY, SPEC, 7)
    assert first["split"].to_list() != other.to_list()


@pytest.mark.parametrize(
    ("task", "classes", "labels"),
    [
        ("multiclass", ("a", "b", "c"), ["a", "b", "c", None]),
        ("regression", (), [0.5, 7.0, 1e6, None]),
        ("ranking", (), [0, 1, 2, None]),
    ],
)
def test_labels_of_every_task_are_shared_out(
    task: Task, classes: tuple[str, ...], labels: list[object]
) -> None:
    query = "q" if task == "ranking" else None
    label = LabelSpec(column="y", task=task, classes=classes, query=query)
    frame = pl.DataFrame(
        {
            "g": [n // 4 for n in range(800)],
            "k": range(800),
            "y": [labels[n // 4 % 4] for n in range(800)],
        },
        strict=False,
    )
    parted = frame.with_columns(stratified_group_split(frame, ["k"], label, SPEC, 0).alias("split"))
    shares = parted.group_by("split", "y").len().filter(pl.col("split") == "holdout")
    assert shares["len"].to_list() == [40] * 4, "a fifth of each"


def test_rows_that_nobody_knows_the_entity_of_are_parted_one_by_one() -> None:
    frame = table(50, 3).with_columns(pl.lit(None, dtype=pl.String).alias("g"))
    parts = stratified_group_split(frame, ["k"], BINARY, SPEC, 0)
    assert parts.value_counts()["count"].min() > 0.15 * len(frame)  # pyright: ignore[reportOperatorIssue]


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.sampled_from([None, "x", "y"]), st.booleans()), min_size=1
    )
)
def test_no_entity_is_ever_on_two_sides(drawn: list[tuple[int, str | None, bool]]) -> None:
    schema = {"g": pl.Int64, "h": pl.String, "y": pl.Boolean}
    frame = pl.DataFrame(drawn, schema=schema, orient="row").with_row_index("k")
    spec = SPEC.model_copy(update={"groups": ("g", "h")})
    parts = stratified_group_split(frame, ["k"], BINARY, spec, 0)
    assert parts.null_count() == 0
    sides = frame.with_columns(parts.alias("split")).drop_nulls("h").group_by("g", "h")
    assert (sides.agg(pl.col("split").n_unique())["split"].max() or 1) == 1
