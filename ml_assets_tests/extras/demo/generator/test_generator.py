"""Generated weeks are a function of seed and week, and each knob changes what it says it does."""

import json
import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from ml_assets.assets.raw_snapshot.readers.read_source import read_source
from ml_assets.assets.validated_table.contract.compiled import audit
from ml_assets.assets.validated_table.contract.suite import load_contract
from ml_assets.errors import SourceError
from ml_assets.extras.demo.generator.recipe import (
    Concept,
    Drift,
    Duplicates,
    LabelDelay,
    NewCategory,
    NullBurst,
    Recipe,
    SchemaChange,
    Volume,
)
from ml_assets.extras.demo.generator.tables import (
    Week,
    generate_week,
    lay_out_generated,
    weeks_from,
)
from ml_assets.extras.demo.outside_world import FLIGHT
from ml_assets.spec.load import load_spec
from ml_assets.spec.partitions import PartitionsSpec, windows
from ml_assets_tests.conftest import Cli

PIPELINE = Path(__file__).parents[4] / "ml_assets" / "pipelines" / "flight_delays"
BEFORE, WEEK, AFTER = weeks_from(date(2013, 5, 6), 3)
CLOCK_CHANGES = [date(2013, 3, 4), date(2013, 10, 28), date(2016, 3, 7), date(2019, 10, 28)]
PLAIN = Recipe()


def turned(*knobs: Any, **more: Any) -> Recipe:
    return Recipe(knobs=knobs, **more)


def equal(one: Week, other: Week) -> bool:
    names = ("flights", "arrivals", "weather")
    return all(getattr(one, name).equals(getattr(other, name)) for name in names)


def laid_out(root: Path, recipe: Recipe, weeks: Iterable[date]) -> dict[str, bytes]:
    for week in weeks:
        list(lay_out_generated(root, recipe, [week]))
    files = (p for p in root.rglob("*") if p.is_file() and p.name != "weather.db")
    return {str(p.relative_to(root)): p.read_bytes() for p in files}


def observed(root: Path) -> list[Any]:
    with closing(sqlite3.connect(root / "weather.db")) as connection:
        return connection.execute("SELECT * FROM weather ORDER BY observed_at, origin").fetchall()


def instants(column: pl.Series) -> pl.Series:
    return column.str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_zone="UTC")


# --- a function of seed and week ------------------------------------------------------------------


@pytest.mark.daemon
def test_a_week_has_the_same_bytes_in_whatever_order_the_weeks_are_made(tmp_path: Path):
    forward = laid_out(tmp_path / "forward", PLAIN, [BEFORE, WEEK, AFTER])
    backward = laid_out(tmp_path / "backward", PLAIN, [AFTER, WEEK, BEFORE])
    alone = laid_out(tmp_path / "alone", PLAIN, [WEEK])
    assert forward == backward
    assert alone.items() <= forward.items()
    assert observed(tmp_path / "forward") == observed(tmp_path / "backward")
    assert set(observed(tmp_path / "alone")) <= set(observed(tmp_path / "forward"))


@pytest.mark.daemon
def test_another_seed_and_another_week_give_other_flights():
    week = generate_week(PLAIN, WEEK)
    assert equal(week, generate_week(Recipe(), WEEK))
    assert not equal(week, generate_week(Recipe(seed=1), WEEK))
    numbers = generate_week(PLAIN, AFTER).flights["flight"]
    assert numbers.to_list() != week.flights["flight"].to_list()


def test_a_week_that_is_there_is_left_and_one_that_is_half_there_is_made_whole(tmp_path: Path):
    before = laid_out(tmp_path, PLAIN, [WEEK])
    rows = observed(tmp_path)
    shutil.rmtree(tmp_path / f"arrivals/{WEEK}")
    assert laid_out(tmp_path, PLAIN, [WEEK, WEEK]) == before
    assert observed(tmp_path) == rows


@pytest.mark.parametrize("week", CLOCK_CHANGES, ids=str)
def test_a_week_lies_in_its_span_and_has_each_key_once_when_the_clock_changes(week: date):
    cut = PartitionsSpec(cadence="weekly", start=week, timezone="America/New_York", day_offset=1)
    span = windows(cut, datetime.combine(week, datetime.min.time(), UTC) + timedelta(days=9))[0]
    made = generate_week(PLAIN, week)
    departures = instants(made.flights["sched_dep_time"])
    assert departures.is_between(span.start, span.end, closed="left").all()
    assert made.weather.select("origin", "observed_at").is_unique().all()
    hours = made.weather["observed_at"].str.to_datetime(time_zone="UTC")
    assert hours.is_between(span.start, span.end, closed="left").all()


def test_at_five_times_the_size_the_contracts_hold_but_for_the_number_of_rows(tmp_path: Path):
    list(lay_out_generated(tmp_path, Recipe(scale=5), [WEEK]))
    spec = load_spec(PIPELINE)
    span = next(
        w for w in windows(spec.partitions, datetime(2014, 1, 6, tzinfo=UTC)) if w.key == str(WEEK)
    )
    for name in ("flights", "arrivals", "weather"):
        source = spec.sources[name]
        url = f"sqlite:///{tmp_path / 'weather.db'}"
        reading = read_source(name, source, tmp_path, lambda _, url=url: url, span)
        found = audit(reading.frame, load_contract(PIPELINE / source.contract))
        broken = {r.check_name for r in found.results if not r.passed}
        assert all(check.startswith("row_count") for check in broken), broken
        assert name == "weather" or 25_000 < len(reading.frame) < 40_000


def test_flights_in_the_same_weather_are_late_as_they_were():
    """What the real year's delays depend on is still there: the hour of the day, for one."""
    made = generate_week(PLAIN, date(2013, 7, 8))
    rows = made.flights.join(made.arrivals, on=FLIGHT)
    late = rows.group_by(pl.col("sched_dep_hour") >= 15).agg((pl.col("arr_delay") > 15).mean())
    morning, evening = late.sort("sched_dep_hour")["arr_delay"]
    assert evening > 1.5 * morning


# --- the knobs ------------------------------------------------------------------------------------


def test_a_knob_changes_no_week_before_it_and_no_other_column():
    recipe = turned(NullBurst(column="wind_gust", share=0.5, since=WEEK, until=WEEK))
    assert equal(generate_week(recipe, BEFORE), generate_week(PLAIN, BEFORE))
    assert equal(generate_week(recipe, AFTER), generate_week(PLAIN, AFTER))
    made, plain = generate_week(recipe, WEEK), generate_week(PLAIN, WEEK)
    assert_frame_equal(made.flights, plain.flights)
    assert_frame_equal(made.weather.drop("wind_gust"), plain.weather.drop("wind_gust"))
    there, was = made.weather["wind_gust"].count(), plain.weather["wind_gust"].count()
    assert 0.3 < there / was < 0.7


def test_drift_moves_a_column_by_its_share_of_the_real_deviation():
    tables = {"temp": "weather", "distance": "flights", "arr_delay": "arrivals"}
    drifting = turned(*(Drift(column=column, sigma=0.3) for column in tables))
    weeks = weeks_from(date(2013, 1, 7), 51)[::5]
    made, plain = ([generate_week(recipe, week) for week in weeks] for recipe in (drifting, PLAIN))
    for column, table in tables.items():
        now, was = (
            pl.concat(getattr(week, table) for week in all_)[column] for all_ in (made, plain)
        )
        assert (now.mean() - was.mean()) / was.std() == pytest.approx(0.3, rel=0.1), column


def test_a_concept_drift_leaves_what_is_seen_and_how_many_are_late():
    made, plain = generate_week(turned(Concept(share=1.0)), WEEK), generate_week(PLAIN, WEEK)
    assert_frame_equal(made.flights, plain.flights)
    delays = [week.arrivals.sort(FLIGHT)["arr_delay"] for week in (made, plain)]
    assert delays[0].sort().to_list() == delays[1].sort().to_list()
    same = (delays[0] == delays[1]).mean()
    assert same is not None and same < 0.2


def test_a_new_category_takes_its_share_of_the_flights():
    made = generate_week(turned(NewCategory(column="dest", value="XYZ", share=0.05)), WEEK)
    share = (made.flights["dest"] == "XYZ").mean()
    assert share == pytest.approx(0.05, abs=0.01)


def test_a_label_delay_moves_when_outcomes_are_known_and_nothing_else():
    made = generate_week(turned(LabelDelay(hours=36)), WEEK).arrivals.sort(FLIGHT)
    plain = generate_week(PLAIN, WEEK).arrivals.sort(FLIGHT)
    assert_frame_equal(made.drop("known_at"), plain.drop("known_at"))
    later = instants(made["known_at"]) - instants(plain["known_at"])
    assert later.unique().to_list() == [timedelta(hours=36)]


def test_volume_and_scale_multiply():
    rows = len(generate_week(PLAIN, WEEK).flights)
    many = len(generate_week(turned(Volume(factor=0.5), scale=4), WEEK).flights)
    assert many / rows == pytest.approx(2, rel=0.01)


def test_duplicates_are_rows_that_are_there_already():
    made = generate_week(turned(Duplicates(table="arrivals", share=0.1)), WEEK).arrivals
    plain = generate_week(PLAIN, WEEK).arrivals
    assert len(made) / len(plain) == pytest.approx(1.1, abs=0.02)
    assert_frame_equal(made.unique(), plain, check_row_order=False)


def test_a_schema_changes_as_it_is_told():
    changes = {
        "added": turned(SchemaChange(table="flights", column="gate", change="added")),
        "removed": turned(SchemaChange(table="flights", column="dest", change="removed")),
        "text": turned(SchemaChange(table="flights", column="distance", change="text")),
        "moved": turned(SchemaChange(table="flights", column="carrier", change="moved")),
    }
    plain = generate_week(PLAIN, WEEK).flights
    made = {name: generate_week(recipe, WEEK).flights for name, recipe in changes.items()}
    assert made["added"].columns == [*plain.columns, "gate"]
    assert made["removed"].columns == [c for c in plain.columns if c != "dest"]
    assert made["text"]["distance"].dtype == pl.String
    assert made["moved"].columns == [*plain.columns[1:], "carrier"]


@pytest.mark.parametrize(
    ("knob", "said"),
    [
        (lambda: Drift(column="carrier", sigma=1), "'carrier' cannot be chosen"),
        (lambda: NullBurst(column="flight", share=0.1), "'flight' cannot be chosen"),
        (lambda: Volume(factor=2, since=date(2013, 5, 7)), "is not a Monday"),
        (lambda: Volume(factor=2, since=AFTER, until=BEFORE), "before it begins"),
        (
            lambda: SchemaChange(table="flights", column="dest", change="added"),
            "has a column 'dest' already",
        ),
    ],
)
def test_a_knob_that_cannot_be_turned_says_why(knob: Any, said: str):
    with pytest.raises(ValueError, match=said):
        knob()


# --- the folder and the command -------------------------------------------------------------------


def test_weeks_of_another_recipe_are_not_mixed_in(tmp_path: Path):
    before = laid_out(tmp_path, PLAIN, [BEFORE])
    with pytest.raises(SourceError, match="another recipe"):
        list(lay_out_generated(tmp_path, Recipe(seed=1), [WEEK]))
    assert laid_out(tmp_path, PLAIN, []) == before


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(SourceError, match="was not generated"):
        list(lay_out_generated(tmp_path, PLAIN, [WEEK]))
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_the_command_makes_what_its_options_say(tmp_path: Path, cli: Cli):
    options = ["--weeks", "1", "--start", str(WEEK), "--scale", "0.1", "--seed", "7"]
    knobs = ["--category", f"dest=XYZ:0.5@{BEFORE}..{WEEK}", "--label-delay", "36@2013-06-03"]
    cli("data", "generate", str(tmp_path / "one"), *options, *knobs)
    made = pl.read_csv(tmp_path / f"one/landing/flights/{WEEK}.csv")
    recipe = Recipe.model_validate_json((tmp_path / "one/recipe.json").read_bytes())
    assert made.equals(pl.read_csv(generate_week(recipe, WEEK).flights.write_csv().encode()))
    assert 0.4 < (made["dest"] == "XYZ").mean() < 0.6  # pyright: ignore[reportOptionalOperand]
    kinds = [knob["kind"] for knob in json.loads(recipe.model_dump_json())["knobs"]]
    assert kinds == ["category", "label_delay"]


@pytest.mark.parametrize(
    "option",
    [
        ["--drift", "temp"],
        ["--drift", "temp=hot"],
        ["--volume", "2@May"],
        ["--nulls", "temp=2"],
        ["--schema", "planes.seats=removed"],
        ["--weeks", "0"],
        ["--start", "2013-05-07"],
        ["--scale", "0"],
    ],
    ids=" ".join,
)
def test_a_wrong_option_is_one_message_and_makes_nothing(
    option: list[str], tmp_path: Path, cli: Cli
):
    said = cli("data", "generate", str(tmp_path / "one"), *option, code=1).err
    assert said.startswith("error: ")
    assert "Traceback" not in said
    assert not (tmp_path / "one").exists()
