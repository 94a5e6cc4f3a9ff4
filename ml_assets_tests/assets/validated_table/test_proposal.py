"""A proposed contract is one that can be read, and that every partition it was made from meets."""

import json
from datetime import UTC, datetime
from typing import Any

import polars as pl
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from ml_assets.assets.validated_table.contract.compiled import audit
from ml_assets.assets.validated_table.contract.proposal import propose
from ml_assets.assets.validated_table.contract.suite import read_contract

SCHEMA = {
    "id": pl.Int64,
    "x": pl.Float64,
    "word": pl.String,
    "flag": pl.Boolean,
    "at": pl.Datetime("us", "UTC"),
}
ROWS = st.lists(
    st.tuples(
        st.integers(-(2**60), 2**60),
        st.none() | st.floats(allow_infinity=False),
        st.none() | st.sampled_from(["a", "b", ""]),
        st.none() | st.booleans(),
        st.none() | st.just(datetime(2024, 1, 1, tzinfo=UTC)),
    ),
    max_size=12,
)


@settings(
    max_examples=30,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@example(partitions=[[(0, 1.7e308, None, None, None), (1, -1.7e308, None, None, None)]])
@example(partitions=[[(0, 5e-324, None, None, None)], []])
@example(partitions=[[(2**62, float("nan"), "", None, None)]])
@given(partitions=st.lists(ROWS, min_size=1, max_size=3))
def test_every_partition_meets_what_was_proposed_from_it(partitions: list[Any]) -> None:
    frames = [pl.DataFrame(rows, schema=SCHEMA, orient="row") for rows in partitions]
    suite = propose("t", [frame.lazy() for frame in frames], ["id"])
    contract = read_contract(json.loads(json.dumps(suite)), "the proposal")
    for frame in frames:
        failed = [r.reason for r in audit(frame, contract).results if not r.passed]
        assert not failed


def stated(frame: pl.DataFrame, key: list[str]) -> dict[tuple[str, str], dict[str, Any]]:
    suite = propose("t", [frame.lazy()], key)
    return {(e["type"], e["kwargs"].get("column", "")): e for e in suite["expectations"]}


def test_it_says_what_identifies_a_row_what_is_never_missing_and_what_was_seen() -> None:
    frame = pl.DataFrame(
        {
            "id": range(100),
            "kind": ["a", "b"] * 50,
            "x": [None, *range(1, 100)],
            "note": [None] * 100,
        },
        schema={"id": pl.Int64, "kind": pl.String, "x": pl.Float64, "note": pl.String},
    )
    found = stated(frame, ["id"])
    assert found["expect_column_values_to_be_unique", "id"]["severity"] == "critical"
    assert found["expect_column_values_to_not_be_null", "kind"]["severity"] == "critical"
    some = found["expect_column_values_to_not_be_null", "x"]
    assert (some["severity"], some["kwargs"]["mostly"]) == ("warning", 0.985)
    assert ("expect_column_values_to_not_be_null", "note") not in found
    assert found["expect_column_values_to_be_in_set", "kind"]["kwargs"]["value_set"] == ["a", "b"]
    x = found["expect_column_values_to_be_between", "x"]["kwargs"]
    assert x["min_value"] == 0, "no room below zero where nothing was below it"
    assert 99 < x["max_value"] <= 150


def test_a_key_that_is_not_unique_is_told_and_proposed_as_a_warning() -> None:
    frame = pl.DataFrame({"id": [1, 1, 2, 3], "part": [1, 1, 1, 1]})
    found = stated(frame, ["id", "part"])["expect_compound_columns_to_be_unique", ""]
    assert found["severity"] == "warning"
    assert found["kwargs"]["mostly"] == 0.5
    assert "50.00%" in found["notes"]
