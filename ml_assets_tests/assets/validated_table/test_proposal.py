"""A proposed contract is one that can be read, and that every partition it was made from meets."""

import json
import math
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
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
    suite = propose("t", [frame.lazy() for frame in frames], ["id"], "x")
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


def test_only_a_label_of_several_classes_speaks_of_label_classes() -> None:
    for values, said in (("ab" * 3, "the label has no third one"), ("abc" * 2, "label.classes")):
        frame = pl.DataFrame({"id": range(6), "kind": [*values]})
        suite = propose("t", [frame.lazy()], ["id"], "kind")
        (found,) = (e for e in suite["expectations"] if e["type"].endswith("_be_in_set"))
        assert said in found["notes"]
        assert ("label.classes" in found["notes"]) == (len(set(values)) > 2)


def test_a_key_that_is_not_unique_is_told_and_proposed_as_a_warning() -> None:
    frame = pl.DataFrame({"id": [1, 1, 2, 3], "part": [1, 1, 1, 1]})
    found = stated(frame, ["id", "part"])["expect_compound_columns_to_be_unique", ""]
    assert found["severity"] == "warning"
    assert found["kwargs"]["mostly"] == 0.5
    assert "50.00%" in found["notes"]


Value = Callable[[datetime, random.Random], float]


def months(number: int, value: Value, *, of: float = 1.0, first: int = 0) -> list[pl.DataFrame]:
    """Hourly rows of so many months from the first on, in units of 1 / `of`."""
    draw, found = random.Random(5), list[pl.DataFrame]()
    for month in range(number):
        begin = datetime(2021 + month // 12, 1 + month % 12, 1, tzinfo=UTC)
        hours = [begin + timedelta(hours=hour) for hour in range(28 * 24)]
        values = [value(at, draw) * of for at in hours]
        found.append(
            pl.DataFrame({"at": hours, "x": values}, schema_overrides={"at": SCHEMA["at"]})
        )
    return found[first:]


def glucose(_: datetime, draw: random.Random) -> float:
    return max(40.0, draw.gauss(140, 40))


def celsius(at: datetime, draw: random.Random) -> float:
    return 12 - 14 * math.cos(at.timetuple().tm_yday / 365 * math.tau) + draw.gauss(0, 3)


def _refused(seen: list[pl.DataFrame], months: list[pl.DataFrame], label: str | None) -> list[bool]:
    """Of each month: whether the contract of those that were seen refuses it."""
    suite = propose("t", [frame.lazy() for frame in seen], ["at"], label)
    stated = [one for one in suite["expectations"] if "row_count" not in one["type"]]
    contract = read_contract(json.loads(json.dumps({**suite, "expectations": stated})), "it")
    return [
        any(one.severity == "critical" and not one.passed for one in audit(month, contract).results)
        for month in months
    ]


@pytest.mark.parametrize(("seen", "label"), [(6, None), (12, "x")])
def test_a_month_in_another_unit_is_refused_and_a_sound_one_never(
    seen: int, label: str | None
) -> None:
    history = months(seen, glucose)
    assert not any(_refused(history, months(30, glucose, first=seen), label))
    assert all(_refused(history, months(30, glucose, of=1 / 18, first=seen), label))
    assert all(_refused(history, months(30, glucose, of=1000, first=seen), label))


@pytest.mark.parametrize("first", range(0, 12, 3))
@pytest.mark.parametrize("seen", [5, 8, 14])
def test_seasons_that_were_not_seen_are_no_other_unit(first: int, seen: int) -> None:
    year = months(40, celsius)
    assert not any(_refused(year[first : first + seen], year, None))


def test_the_expectation_that_the_page_shows_is_one_that_is_proposed() -> None:
    frames = [frame.lazy().rename({"x": "glucose"}) for frame in months(12, glucose)]
    proposed = propose("t", frames, ["at"], "glucose")["expectations"]
    page = Path(__file__).parents[3] / "docs" / "add-a-pipeline.md"
    shown = page.read_text().partition("```json\n")[2].partition("```")[0]
    assert json.loads(shown) in proposed


def test_means_of_what_only_grows_of_yes_and_no_and_of_weeks_decide_nothing() -> None:
    def mean_of(frames: list[pl.DataFrame]) -> list[str]:
        suite = propose("t", [frame.lazy() for frame in frames], ["at"])
        return [one["severity"] for one in suite["expectations"] if "_mean_" in one["type"]]

    assert mean_of(months(6, glucose)) == ["critical"]
    assert mean_of(months(2, glucose)) == ["warning"], "other seasons were not seen"
    assert not mean_of(months(6, lambda at, _: at.timestamp() / 3600)), "a meter"
    assert not mean_of(months(6, lambda at, _: float(at.hour > 5)))
    assert not mean_of([frame.head(20) for frame in months(6, glucose)]), "too few values"


def test_a_key_that_few_rows_share_is_critical_and_keeps_those_back() -> None:
    frame = pl.DataFrame({"id": [0, *range(999)]})
    found = stated(frame, ["id"])["expect_column_values_to_be_unique", "id"]
    assert (found["severity"], found["kwargs"]["mostly"]) == ("critical", 0.996)
