"""What one column of new rows is held to, at the ends of the scale."""

import re

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.drift_report.columns import Reference, judge_columns
from ml_assets.assets.drift_report.findings import Finding
from ml_assets.assets.evaluation_report.drift_profile import count, make_profile
from ml_assets.spec.drift import DriftBounds

ALPHA = 1e-5


def readings(draw: np.random.Generator, null: float) -> pl.DataFrame:
    values = draw.normal(size=5_000)
    values[draw.random(5_000) < null] = np.nan
    return pl.DataFrame({"gust": values})


def judged(trained: float, seen: float) -> Finding:
    """The finding about null rates, of a column with one in training and another in new rows."""
    draw = np.random.default_rng(0)
    profile = make_profile({str(n): readings(draw, trained) for n in range(8)}, ["gust"], [])
    period = count(readings(draw, seen), profile.bins, "new")
    found = judge_columns(
        Reference.of(profile, ALPHA), None, period, DriftBounds(), ALPHA, "features"
    )
    (nulls,) = [one for one in found if one.kind == "nulls"]
    return nulls


@pytest.mark.parametrize(
    ("trained", "seen"), [(0.02, 0.05), (0.3, 0.6), (0.75, 0.9), (0.97, 0.999), (0.0, 0.1)]
)
def test_lost_values_are_found_whatever_the_null_rate_was(trained: float, seen: float) -> None:
    assert judged(trained, seen).drifted
    assert not judged(trained, trained).drifted


def test_no_null_rate_is_held_to_more_than_all_rows() -> None:
    assert judged(1.0, 1.0).worst.bound <= 1.0
    assert not judged(1.0, 1.0).drifted


def test_a_column_that_drifted_says_which_way() -> None:
    draw = np.random.default_rng(0)

    def rows(mean: float, share: float) -> pl.DataFrame:
        airline = np.where(draw.random(5_000) < share, "UA", "B6")
        return pl.DataFrame({"delay": draw.normal(mean, size=5_000), "airline": airline})

    frames: dict[str | None, pl.DataFrame] = {str(n): rows(0.0, 0.2) for n in range(8)}
    profile = make_profile(frames, ["delay"], ["airline"])

    def said(mean: float, share: float) -> list[str]:
        period = count(rows(mean, share), profile.bins, "new")
        reference = Reference.of(profile, ALPHA)
        found = judge_columns(reference, None, period, DriftBounds(), ALPHA, "features")
        return [one.moved for one in found if one.kind == "features"]

    assert said(0.0, 0.2) == ["", ""], "it did not drift"
    above = r"the share above «-?\d\.\d+» {} from \d\d\.\d% to \d\d\.\d%"
    for mean, verb in ((2.0, "rose"), (-2.0, "fell")):
        assert re.fullmatch(above.format(verb), said(mean, 0.2)[0])
    (_, airline) = said(0.0, 0.7)
    assert re.fullmatch(r"the share «(UA» rose|B6» fell) from \d\d\.\d% to \d\d\.\d%", airline)
