"""What is called free of repeats is; and a repeat is found wherever it is."""

from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ml_assets.assets.validated_table.contract.compiled import audit, no_repeats
from ml_assets.assets.validated_table.contract.suite import Contract, Expectation

TIMES = [datetime(2013, 1, day, tzinfo=UTC) for day in (1, 2)]
VALUES = {
    "count": (pl.Int64, [None, -1, 0, 2**62]),
    "word": (pl.String, [None, "", "a", "longer than twelve bytes"]),
    "flag": (pl.Boolean, [None, False, True]),
    "at": (pl.Datetime("us", "UTC"), [None, *TIMES]),
    "share": (pl.Float64, [None, -0.0, 0.0, float("inf")]),
    "kind": (pl.Categorical, [None, "x", "y"]),
}
SIZE = 300_000


@st.composite
def tables(draw: st.DrawFn) -> pl.DataFrame:
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3, unique=True))
    row = st.tuples(*(st.sampled_from(VALUES[name][1]) for name in names))
    rows = draw(st.lists(row, max_size=6))
    return pl.DataFrame(rows, schema={name: VALUES[name][0] for name in names}, orient="row")


@settings(max_examples=400, derandomize=True)
@given(table=tables())
def test_no_repeats_is_never_said_of_rows_with_a_repeat(table: pl.DataFrame) -> None:
    keys = table.rows()  # two tuples with -0.0 and 0.0 are equal, as two Nones are
    if no_repeats(table.lazy(), [pl.col(name) for name in table.columns]):
        assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", ["count", "word", "flag", "at"])
@pytest.mark.parametrize("descending", [False, True])
def test_distinct_keys_are_proved_in_any_order(name: str, descending: bool) -> None:
    dtype, values = VALUES[name]
    table = pl.DataFrame({name: pl.Series(values, dtype=dtype)}).sort(name, descending=descending)
    assert no_repeats(table.lazy(), [pl.col(name)])
    assert not no_repeats(pl.concat([table, table[:1]]).lazy(), [pl.col(name)])


def test_keys_in_order_are_proved_where_a_hash_would_not_tell() -> None:
    table = pl.DataFrame({"share": [0.5, 1.5], "count": [1, 1]})
    assert no_repeats(table.lazy(), [pl.col("count"), pl.col("share")])
    assert not no_repeats(table[::-1].lazy(), [pl.col("count"), pl.col("share")]), "unproved"


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("columns", [["number"], ["number", "word"]])
def test_one_repeat_far_away_in_many_rows_is_found(columns: list[str], shuffled: bool) -> None:
    table = pl.DataFrame({"number": range(SIZE)}).with_columns(
        word=pl.format("flight {}", pl.col("number") % 1000)
    )
    table = table.sample(fraction=1, shuffle=True, seed=7) if shuffled else table
    repeated = pl.concat([table, table[3:4]])
    kind, kwargs = "expect_compound_columns_to_be_unique", {"column_list": columns}
    unique = Expectation(kind, {**kwargs, "mostly": 0.5}, "critical", "unique")
    sound, found = (audit(rows.lazy(), Contract("t", (unique,))) for rows in (table, repeated))
    assert [result.rows_failed for result in (*sound.results, *found.results)] == [0, 2]
    assert sound.clean.height == SIZE
    assert found.quarantined["number"].to_list() == [table["number"][3]] * 2
