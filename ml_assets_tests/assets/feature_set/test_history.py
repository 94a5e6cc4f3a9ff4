"""History features see what was known before the decision, exactly, and nothing later."""

from datetime import UTC, datetime, timedelta

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from ml_assets.assets.feature_set.history import latest, trailing_mean

START = datetime(2024, 1, 1, tzinfo=UTC)
SPAN = timedelta(hours=6)

EVENTS = st.lists(
    st.tuples(st.integers(0, 48), st.sampled_from("ab"), st.integers(0, 1)), max_size=30
)
ROWS = st.lists(st.tuples(st.integers(0, 48), st.sampled_from("ab")), min_size=1, max_size=10)


def events_of(events: list[tuple[int, str, int]]) -> pl.DataFrame:
    schema = {"known_at": pl.Datetime("us", "UTC"), "e": pl.String, "y": pl.Int64}
    rows = [(START + timedelta(hours=hour), entity, y) for hour, entity, y in events]
    return pl.DataFrame(rows, schema=schema, orient="row")


def rows_of(rows: list[tuple[int, str]]) -> pl.DataFrame:
    schema = {"decision_at": pl.Datetime("us", "UTC"), "e": pl.String}
    found = [(START + timedelta(hours=hour), entity) for hour, entity in rows]
    return pl.DataFrame(found, schema=schema, orient="row")


@given(events=EVENTS, rows=ROWS)
def test_the_mean_is_the_one_of_brute_force(
    events: list[tuple[int, str, int]], rows: list[tuple[int, str]]
) -> None:
    found = trailing_mean(
        rows_of(rows), events_of(events), name="m", value="y", span=SPAN, by=["e"]
    )
    for (hour, entity), mean in zip(rows, found["m"].to_list(), strict=True):
        seen = [y for at, e, y in events if e == entity and hour - 6 <= at < hour]
        assert (
            mean == (sum(seen) / len(seen) if seen else None)
            or abs(mean - sum(seen) / len(seen)) < 1e-9
        )


@given(events=EVENTS, rows=ROWS, changed=st.integers(0, 48))
def test_changing_what_becomes_known_later_changes_no_row(
    events: list[tuple[int, str, int]], rows: list[tuple[int, str]], changed: int
) -> None:
    decided = [(min(hour, changed), entity) for hour, entity in rows]
    other = [(at, e, 1 - y if at >= changed else y) for at, e, y in events]

    def seen(history: list[tuple[int, str, int]]) -> pl.DataFrame:
        table = events_of(history)
        made = trailing_mean(rows_of(decided), table, name="m", value="y", span=SPAN, by=["e"])
        return latest(made, table, columns=["y"], by=["e"], within=SPAN)

    assert seen(events).equals(seen(other))


def test_a_prior_pulls_a_short_history_to_it() -> None:
    found = trailing_mean(
        rows_of([(10, "a"), (10, "b")]),
        events_of([(9, "a", 1)]),
        name="m",
        value="y",
        span=SPAN,
        by=["e"],
        prior=0.2,
        weight=9.0,
    )
    assert found["m"].to_list() == [(1 + 9 * 0.2) / 10, 0.2]


def test_the_newest_event_known_before_the_decision_is_taken() -> None:
    events = events_of([(3, "a", 0), (9, "a", 1), (10, "a", 0)])
    found = latest(rows_of([(10, "a"), (20, "a")]), events, columns=["y"], by=["e"], within=SPAN)
    assert found["y"].to_list() == [1, None]
