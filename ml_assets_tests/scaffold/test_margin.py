"""The margin that a new pipeline begins with: what its holdout can show, said beside it."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
from scipy.stats import t

from ml_assets.scaffold.find_input import Given
from ml_assets.scaffold.labelled_table import LabelledTable, describe, sample_table
from ml_assets.scaffold.margin import ALIKE, champion_margin
from ml_assets.spec.gates import AgainstChampion
from ml_assets.spec.load import load_spec
from ml_assets_tests.conftest import Cli

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def prices(hours: int, by_day: float = 2.0, jumps: bool = False) -> LabelledTable:
    """A price an hour, off by the day; with ``jumps`` some of them are far away."""
    draw = random.Random(7)
    rows: list[dict[str, object]] = []
    off = 0.0
    for hour in range(hours):
        off = draw.gauss(0, by_day) if hour % 24 == 0 else off
        price = 50 + draw.gauss(0, 1) + off + (40 * (draw.random() < 0.02) if jumps else 0)
        rows.append({"n": hour, "at": START + hour * HOUR, "size": draw.random(), "price": price})
    given = Given(pl.DataFrame(rows), rows="written")
    return describe(given, label="price", key=["n"], time="at")


def test_more_days_show_smaller_differences() -> None:
    many, few = champion_margin(prices(24 * 400), 0), champion_margin(prices(24 * 60), 0)
    assert 0.01 < many.value < few.value < 0.25
    assert "the holdout's 80 days show a difference of" in many.said
    assert "four times out of five" in many.said


def test_a_holdout_that_shows_nothing_says_to_hold_out_more() -> None:
    found = champion_margin(prices(24 * 5), 0)
    assert found.value == 0.25
    assert (
        "the holdout's 1 day cannot show a difference of 25% of the RMSE: hold out more"
        in found.said
    )


def test_numbers_too_large_to_be_squared_have_the_widest_margin() -> None:
    given = prices(24 * 60).given
    huge = given.frame.with_columns(pl.col("price") * 1e300)
    table = describe(replace(given, frame=huge), label="price", key=["n"], time="at")
    assert champion_margin(table, 0).value == 0.25


def test_one_percent_is_the_smallest() -> None:
    assert champion_margin(prices(24 * 3000, by_day=0.0), 0).value == 0.01


def test_a_series_is_held_to_persistence_and_its_holdout_partitions() -> None:
    table = prices(24 * 60)
    ahead = describe(table.given, label="price", key=["at"], time="at", ahead=3 * HOUR)
    assert champion_margin(ahead, 0).value > 0


def test_two_models_that_are_alike_pass_four_times_out_of_five() -> None:
    """The claim of the sentence, over draws of days on which two models are as good."""
    draw, days, rows = np.random.default_rng(1), 20, 48
    moments = [START + n * HOUR / 2 for n in range(5 * days * rows)]
    label = np.repeat(draw.normal(0, 3, 5 * days), rows) + draw.normal(0, 1, 5 * days * rows)
    frame = pl.DataFrame({"at": moments, "n": range(len(moments)), "y": label, "x": label})
    table = describe(Given(frame, rows="written"), label="y", key=["n"], time="at")
    margin = champion_margin(table, 0).value
    held = frame.tail(days * rows)["y"].to_numpy().reshape(days, rows)
    losses = ((held - held.mean()) ** 2).mean(axis=1)
    apart = losses.std(ddof=1) * np.sqrt(2 * (1 - ALIKE)) / (2 * losses.mean())
    found = draw.normal(0, apart, (4000, days))
    errors = found.std(axis=1, ddof=1) / np.sqrt(days)
    shown = found.mean(axis=1) + t.isf(0.025, days - 1) * errors < margin
    assert 0.75 < shown.mean() < 0.92


def test_the_spec_that_is_written_has_the_margin_and_its_sentence(room: Path, cli: Cli) -> None:
    cli("new", "orders")
    folder = room / "orders"
    spec = load_spec(folder)
    (gate,) = [one for one in spec.gates if isinstance(one, AgainstChampion)]
    assert gate.margin == champion_margin(sample_table(), 0).value
    text = " ".join((folder / "defs.yaml").read_text().replace("#", " ").split())
    rule = "margin: a new model must be shown to be less than this much worse than the champion"
    assert f"{rule}; the holdout's 5 days show a difference of" in text
