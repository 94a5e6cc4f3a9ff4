"""The classifier tells what no column shows, is quiet on unchanged data, and knows its periods."""

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.drift_report.domain_classifier import Domain, auc_between
from ml_assets.assets.evaluation_report.drift_profile import make_profile

ALPHA = 0.001


def pair(draw: np.random.Generator, rows: int, correlation: float) -> pl.DataFrame:
    """Two normal columns; only their product says how they hang together."""
    x, noise = draw.normal(size=rows), draw.normal(size=rows)
    y = correlation * x + np.sqrt(1 - correlation**2) * noise
    return pl.DataFrame({"x": x, "y": y, "z": x * y, "w": draw.choice(["a", "b"], rows)})


def periods(draw: np.random.Generator) -> dict[str | None, pl.DataFrame]:
    return {str(n): pair(draw, 500, 0.0) for n in range(10)}


@pytest.fixture
def domain() -> Domain:
    frames = periods(np.random.default_rng(1))
    bins = make_profile({None: pl.concat(list(frames.values()))}, ["x", "y", "z"], ["w"]).bins
    return Domain.of(bins, frames, ALPHA, 0.6)


def test_unchanged_rows_are_not_told_apart(domain: Domain) -> None:
    draw = np.random.default_rng(2)
    for size in (100, 1000):
        found = [domain.judge(pair(draw, size, 0.0), None) for _ in range(20)]
        assert not any(one.drifted for one in found if one)


def test_rows_that_hang_together_otherwise_are_told_apart(domain: Domain) -> None:
    found = domain.judge(pair(np.random.default_rng(3), 1000, 0.95), None)
    assert found
    assert found.drifted
    assert found.worst.value > 0.65


def test_a_season_that_returns_is_no_drift(domain: Domain) -> None:
    draw = np.random.default_rng(4)
    new, season = pair(draw, 1000, 0.95), pair(draw, 1000, 0.95)
    alone, beside = domain.judge(new, None), domain.judge(new, season)
    assert alone
    assert beside
    assert alone.drifted
    assert not beside.drifted


def test_periods_that_differ_by_themselves_raise_the_bound() -> None:
    """As weeks of weather do: one more of the kind is no drift."""
    draw = np.random.default_rng(5)
    frames: dict[str | None, pl.DataFrame] = {
        str(n): pair(draw, 500, 0.0).with_columns(pl.col("x") + draw.normal()) for n in range(12)
    }
    bins = make_profile({None: pl.concat(list(frames.values()))}, ["x", "y", "z"], ["w"]).bins
    domain = Domain.of(bins, frames, ALPHA, 0.6)
    found = domain.judge(pair(draw, 500, 0.0).with_columns(pl.col("x") + 1.0), None)
    assert found
    assert found.worst.bound > 0.75
    assert not found.drifted


def test_a_period_or_a_season_without_rows_says_nothing(domain: Domain) -> None:
    draw = np.random.default_rng(7)
    new = pair(draw, 1000, 0.95)
    gap: dict[str | None, pl.DataFrame] = {"gap": new.clear()}
    again = Domain.of(domain.bins, {**domain.reference, **gap}, ALPHA, 0.6)
    assert again.judge(new, new.clear()) == domain.judge(new, None)
    assert Domain.of(domain.bins, gap, ALPHA, 0.6).judge(new, None) is None


def test_what_is_the_same_has_an_auc_of_one_half() -> None:
    frame = pair(np.random.default_rng(6), 400, 0.0)
    bins = make_profile({None: frame}, ["x", "y", "z"], ["w"]).bins
    assert auc_between(frame, frame, bins) == pytest.approx(0.5, abs=0.05)
