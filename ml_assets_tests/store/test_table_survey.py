"""Statistics of a table are right, add up exactly, and survive whatever a column holds."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ml_assets.spec.base import canonical_json
from ml_assets.store.table_statistics import (
    BINS,
    GROUPS,
    SAMPLED,
    WORDS,
    Column,
    TableStatistics,
    merge_all,
)
from ml_assets.store.table_survey import LabelColumns, survey

LABELS = LabelColumns("late", by=("depot",), period="at")
BEGIN = datetime(2024, 1, 1, 22, 0, tzinfo=UTC)


def frame(rows: int, seed: int = 0) -> pl.DataFrame:
    draw = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "order": np.arange(rows) + seed * 10_000,
            "load": np.where(draw.random(rows) < 0.1, np.nan, draw.normal(50, 10, rows)),
            "depot": draw.choice(["north", "south", None], rows).tolist(),
            "late": draw.random(rows) < 0.3,
            "at": [BEGIN + timedelta(minutes=int(m)) for m in draw.integers(0, 3000, rows)],
        },
        schema_overrides={"depot": pl.String},
    )


def column(seen: TableStatistics, name: str) -> Column:
    return next(one for one in seen.columns if one.name == name)


def test_counts_ranges_and_moments_are_those_of_the_rows() -> None:
    rows = frame(4000)
    seen = survey(rows, ["order"], LABELS)
    load = column(seen, "load")
    values = rows["load"].drop_nans()
    assert (seen.rows, load.missing) == (4000, 4000 - len(values))
    assert load.numbers is not None
    assert (load.numbers.low, load.numbers.high) == (values.min(), values.max())
    assert load.numbers.mean == pytest.approx(values.mean())
    assert load.numbers.deviation == pytest.approx(values.std(ddof=0))
    assert sum(load.numbers.histogram.counts) == len(values)
    width = 2.0**load.numbers.histogram.level
    for share in (0.05, 0.5, 0.95):
        assert load.numbers.quantile(share) == pytest.approx(values.quantile(share), abs=width)
    depot = column(seen, "depot").texts
    assert depot is not None
    assert dict(depot.values) == dict(rows["depot"].drop_nulls().value_counts().iter_rows())


def test_labels_are_counted_by_group_and_by_day() -> None:
    rows = frame(2000).with_columns(pl.when(pl.col("order") % 7 > 0).then("late").alias("late"))
    seen = survey(rows, ["order"], LABELS)
    assert seen.labels is not None
    assert seen.labels.labelled == rows["late"].count()
    assert seen.labels.rates[0] == pytest.approx(rows["late"].mean())
    by = {one.by: {group.value: group for group in one.groups} for one in seen.grouped}
    assert set(by["depot"]) == {"north", "south", "(missing)"}
    south = rows.filter(pl.col("depot") == "south")
    assert by["depot"]["south"].rates[0] == pytest.approx(south["late"].mean())
    assert sorted(by["at"]) == ["2024-01-01", "2024-01-02", "2024-01-03"]


def test_classes_are_counted_each() -> None:
    rows = pl.DataFrame({"kind": ["a", "b", "b", None], "n": [1, 2, 3, 4]})
    seen = survey(rows, ["n"], LabelColumns("kind", classes=("a", "b")))
    assert seen.labels is not None
    assert seen.labels.sums == (1.0, 2.0)
    assert seen.labels.rates == pytest.approx((1 / 3, 2 / 3))


def test_repeated_keys_and_repeated_rows_are_told_apart() -> None:
    rows = pl.DataFrame({"k": [1, 1, 1, 2], "x": ["a", "a", "b", "c"]})
    seen = survey(rows, ["k"])
    assert (seen.repeated_keys, seen.repeated_rows) == (2, 1)


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.floats(allow_nan=True, allow_infinity=True),
            st.floats(-1e3, 1e3).map(lambda x: round(x, 2)),
        ),
        max_size=400,
    ),
    st.integers(0, 400),
)
@example([0.0, 1.4e154], 1)
@example([-1.7e308, 1.7e308], 1)
@example([1.9156194260823424e53, -2.0665027929419121e-274], 1)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_histograms_of_two_parts_add_up_to_that_of_the_whole(
    values: list[float | None], cut: int
) -> None:
    whole = pl.DataFrame({"x": values}, schema={"x": pl.Float64})
    left, right = survey(whole[:cut], []), survey(whole[cut:], [])
    for added in (merge_all([left, right]), merge_all([right, left])):
        one, other = column(added, "x"), column(survey(whole, []), "x")
        assert (one.missing, one.infinite) == (other.missing, other.infinite)
        assert (one.numbers is None) == (other.numbers is None)
        if one.numbers and other.numbers:
            assert one.numbers.histogram == other.numbers.histogram
            assert (one.numbers.low, one.numbers.high) == (other.numbers.low, other.numbers.high)
            assert len(one.numbers.histogram.places) <= BINS
            assert sum(one.numbers.histogram.counts) == one.numbers.rows


def test_partitions_in_any_order_add_up_to_the_whole_table() -> None:
    parts = [frame(300, seed) for seed in range(5)]
    whole = survey(pl.concat(parts), ["order"], LABELS)
    seen = [survey(part, ["order"], LABELS) for part in parts]
    for order in ([0, 1, 2, 3, 4], [3, 0, 4, 2, 1]):
        added = seen[order[0]]
        for place in order[1:]:
            added = merge_all([added, seen[place]])
        assert added.sample == whole.sample
        assert added.labels == whole.labels
        assert added.grouped == whole.grouped
        for name in ("order", "load", "at"):
            one, other = column(added, name).numbers, column(whole, name).numbers
            assert one is not None and other is not None
            assert one.histogram == other.histogram
            assert one.mean == pytest.approx(other.mean)
            assert one.squares == pytest.approx(other.squares)


def test_what_is_small_in_each_part_and_large_in_all_is_kept_and_so_is_every_day() -> None:
    def part(number: int) -> TableStatistics:
        day = datetime(2023, 1, 1, tzinfo=UTC) + timedelta(number)
        own = [f"{number}-{n // 3}" for n in range(240)]  # 80 of 3 rows each
        depots = ["common", "common", *own]
        rows = {"order": range(242), "depot": depots, "late": [True] * 242, "at": [day] * 242}
        return survey(pl.DataFrame(rows), ["order"], LABELS)

    whole = merge_all(part(number) for number in range(250))
    groups = {one.by: {group.value: group.rows for group in one.groups} for one in whole.grouped}
    assert groups["depot"]["common"] == 500
    assert len(groups["depot"]) == GROUPS
    assert len(groups["at"]) == 250


def test_a_column_that_only_one_part_has_is_missing_in_the_other() -> None:
    left, right = pl.DataFrame({"a": [1, 2]}), pl.DataFrame({"a": [3], "b": ["x"]})
    added = merge_all([survey(left, ["a"]), survey(right, ["a"])])
    assert column(added, "b").missing == 2
    retyped = merge_all([survey(left, ["a"]), survey(pl.DataFrame({"a": ["x"]}), ["a"])])
    assert (column(retyped, "a").kind, column(retyped, "a").type) == ("other", "Int64 or String")


def test_many_different_texts_are_counted_within_a_stated_bound() -> None:
    draw = np.random.default_rng(1)
    names = [f"N{n}" for n in draw.zipf(1.5, 20_000) % 5000]
    parts = [pl.DataFrame({"tail": names[at : at + 4000]}) for at in range(0, 20_000, 4000)]
    added = survey(parts[0], [])
    for part in parts[1:]:
        added = merge_all([added, survey(part, [])])
    texts = column(added, "tail").texts
    assert texts is not None
    assert len(texts.values) <= WORDS
    true = dict(pl.Series("t", names).value_counts().iter_rows())
    assert 0 < texts.short <= 20_000 / WORDS * 2
    assert texts.different <= len(true)
    for value, count in texts.values:
        assert true[value] - texts.short <= count <= true[value]
    assert texts.values[0][0] == max(true, key=lambda name: true[name])


def test_one_value_far_out_does_not_flatten_the_others() -> None:
    values = [*np.random.default_rng(0).normal(size=1000).tolist(), 300.0]
    seen = column(survey(pl.DataFrame({"x": values}), []), "x").numbers
    assert seen is not None
    assert len(seen.histogram.places) > BINS / 4
    assert seen.quantile(0.5) == pytest.approx(float(np.median(values)), abs=0.2)


HOSTILE = {
    "int": pl.Series([2**63 - 1, -(2**63)]),
    "unsigned": pl.Series([0, 2**64 - 1], dtype=pl.UInt64),
    "huge": pl.Series([1.7e308, -1.7e308]),
    "tiny": pl.Series([5e-324, -5e-324]),
    "nothing": pl.Series([None, None], dtype=pl.Null),
    "nulls": pl.Series([None, None], dtype=pl.Float64),
    "nan": pl.Series([float("nan"), float("inf")]),
    "text": pl.Series(["<script>alert(1)</script>" * 1000, "\x00\x1f\ud7ff"]),
    "flag": pl.Series([True, None]),
    "day": pl.Series([date(1, 1, 1), date(9999, 12, 31)]),
    "far": pl.Series([0, 2**62]).cast(pl.Datetime("us")),
    "span": pl.Series([timedelta(0), timedelta(days=9)]),
    "list": pl.Series([[1], [2, 3]]),
    "bytes": pl.Series([b"\xff", b""]),
    "decimal": pl.Series([Decimal("1.50"), None]),
    "enum": pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"])),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_column_of_any_type_and_any_size_is_surveyed(name: str) -> None:
    rows = pl.DataFrame({"k": [1, 2], name: HOSTILE[name]})
    seen = survey(rows, ["k"])
    again = TableStatistics.model_validate_json(canonical_json(seen))
    assert again == seen
    assert column(merge_all([seen, seen]), name).missing == 2 * column(seen, name).missing


@pytest.mark.parametrize("name", HOSTILE)
def test_a_column_may_be_called_anything_and_hold_no_row(name: str) -> None:
    empty = pl.DataFrame({f"{name} <b>\n'": HOSTILE[name]}).clear()
    seen = survey(empty, [])
    assert (seen.rows, seen.repeated_keys, seen.sample) == (0, 0, ())
    assert merge_all([seen, seen]).rows == 0


def test_columns_that_are_called_like_what_is_measured_of_them_are_told_apart() -> None:
    names = ["0", "1", "0 null", "hash", "rows", "", "value", "count", "\x1f"]
    rows = pl.DataFrame({name: [place, None] for place, name in enumerate(names)})
    seen = survey(rows, ["hash"], LabelColumns("rows", by=("value", "0 null", "gone")))
    assert [one.name for one in seen.columns] == names
    assert [one.missing for one in seen.columns] == [1] * len(names)
    assert [one.by for one in seen.grouped] == ["value", "0 null"]


def test_the_sample_is_of_the_rows_and_no_more_than_a_few() -> None:
    seen = survey(frame(500), ["order"])
    assert len(seen.sample) == SAMPLED
    assert seen.sampled_columns == ("order", "load", "depot", "late", "at")
    assert all(0 <= int(row.cells[0]) < 500 for row in seen.sample)
