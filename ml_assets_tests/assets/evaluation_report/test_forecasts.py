"""What a model of a time series has to beat: nothing changes, as a season ago, it goes on so."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.evaluation_report.forecasts import forecast, persistence
from ml_assets.spec.forecasts import DriftBaseline, PersistenceBaseline, SeasonalNaiveBaseline
from ml_assets.spec.pipeline import PipelineSpec

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def series(spec: PipelineSpec) -> PipelineSpec:
    """The level of two stations, six hours ahead."""
    known: dict[str, Any] = spec.model_dump(mode="json", exclude={"gates", "evaluation"})
    features = known["features"] | {"key": ["s", "at"], "decision_at": "at", "look_back": 1}
    label = {"column": "level", "task": "regression", "ahead": "6h"}
    gates = [{"kind": "bound", "name": "skill", "metric": "skill", "at_least": 0.1}]
    known |= {"features": features, "label": label, "gates": gates}
    known["schema"] = known.pop("schema_version")
    return PipelineSpec.model_validate(known)


def table(first: int, levels: dict[str, list[float | None]]) -> pl.DataFrame:
    rows = [
        (station, START + (first + n) * HOUR, level)
        for station, held in levels.items()
        for n, level in enumerate(held)
    ]
    schema = {"s": pl.String, "at": pl.Datetime("us", "UTC"), "level": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_persistence_is_the_value_at_the_decision_or_the_last_one_known(
    series: PipelineSpec,
) -> None:
    holdout = table(0, {"a": [1.0, None, 3.0], "b": [None, 8.0, None]})
    found = persistence(series, holdout)
    assert found is not None
    assert found.tolist() == [1.0, 1.0, 3.0, 4.0, 8.0, 8.0]  # 4: the mean, before there is one
    (same,) = forecast(PersistenceBaseline(kind="persistence"), series, [holdout], [], holdout).T
    assert np.array_equal(same, found)


def test_a_label_of_its_own_row_has_no_persistence(spec: PipelineSpec) -> None:
    assert persistence(spec, pl.DataFrame()) is None


def test_the_season_before_the_outcome_is_looked_up_by_time(series: PipelineSpec) -> None:
    train = table(0, {"a": [float(n) for n in range(24)]})
    holdout = table(24, {"a": [100.0, 101.0, 102.0]})
    day = SeasonalNaiveBaseline(kind="seasonal_naive", season=timedelta(days=1))
    # decided at 24:00 for 30:00: a day before that it was 6
    halves = [train.head(7), train.tail(17)]
    assert forecast(day, series, halves, [], holdout)[:, 0].tolist() == [6.0, 7.0, 8.0]
    # where it lies in the validation split, as of a season that is shorter than its span
    assert forecast(day, series, [], halves, holdout)[:, 0].tolist() == [6.0, 7.0, 8.0]
    week = SeasonalNaiveBaseline(kind="seasonal_naive", season=timedelta(days=7))
    assert forecast(week, series, halves, [], holdout)[:, 0].tolist() == [100.0, 101.0, 102.0]


@pytest.mark.parametrize("hours", [6, 24])
def test_no_baseline_sees_a_value_after_its_decision(series: PipelineSpec, hours: int) -> None:
    """The embargo parts outcomes from rows to train on. What was known at a decision is open to
    baselines as to the model, whose features hold the value at the decision itself."""
    train, holdout = table(0, {"a": [*map(float, range(24))]}), table(30, {"a": [50.0] * 40})
    asked = (
        PersistenceBaseline(kind="persistence"),
        SeasonalNaiveBaseline(kind="seasonal_naive", season=hours * HOUR),
        DriftBaseline(kind="drift"),
    )
    for row in (0, 17, 39):
        later = pl.int_range(pl.len()) > row
        other = holdout.with_columns(pl.when(later).then(-1.0).otherwise("level").alias("level"))
        for one in asked:
            first, second = (
                forecast(one, series, [train], [], rows)[: row + 1] for rows in (holdout, other)
            )
            assert np.array_equal(first, second), (one.name, row)


def test_drift_goes_on_as_in_training_for_each_entity(series: PipelineSpec) -> None:
    train = table(0, {"a": [0.0, 5.0, 2.0], "b": [9.0, None, 3.0]})
    holdout = table(5, {"a": [10.0], "b": [10.0], "c": [10.0]})
    for shards in ([train], [train[1:4], train[[0, 4, 5]]]):
        found = forecast(DriftBaseline(kind="drift"), series, shards, [], holdout)[:, 0]
        assert found.tolist() == pytest.approx([10 + 6 * 1.0, 10 - 6 * 3.0, 10.0])
