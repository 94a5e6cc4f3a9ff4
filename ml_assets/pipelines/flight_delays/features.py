"""What is known two hours before a scheduled departure about whether the flight arrives late.

Schedule, plane, congestion, the last observed weather, and how flights that had landed by then
had fared. Nothing of the flight itself: it has not left.
"""

from collections.abc import Mapping
from datetime import timedelta

import polars as pl

from ml_assets.assets.feature_set.history import latest, trailing_mean
from ml_assets.spec.window import Window

HORIZON = timedelta(hours=2)
"""Decided early enough to rebook a connection."""
LATE_MINUTES = 15
WEATHER_LAG = timedelta(minutes=30)
"""From an observation to the moment it can be read."""
FLIGHT = ["carrier", "flight", "origin", "sched_dep_time"]

RECENT = [
    # name, entity, hours
    ("origin_late_3h", ["origin"], 3),
    ("origin_late_8h", ["origin"], 8),
    ("carrier_origin_late_8h", ["carrier", "origin"], 8),
    ("dest_late_8h", ["dest"], 8),
    ("all_late_3h", [], 3),
]
HISTORY = [
    ("carrier_origin_late_7d", ["carrier", "origin"], 7),
    ("carrier_late_28d", ["carrier"], 28),
    ("dest_late_7d", ["dest"], 7),
    ("dest_late_28d", ["dest"], 28),
    ("origin_hour_late_14d", ["origin", "hour"], 14),
    ("route_late_28d", ["carrier", "origin", "dest"], 28),
    ("flight_late_28d", ["carrier", "flight", "origin"], 28),
]
PRIOR_LATE = 0.25
PRIOR_FLIGHTS = 10.0


def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    """One row for each flight scheduled to depart in the window."""
    flights = _schedule(tables["flights"].collect())
    arrivals = _arrivals(tables["arrivals"].collect(), flights)
    rows = flights.filter(pl.col("sched_dep_time").is_between(window.start, window.end, "left"))
    rows = rows.join(arrivals.select(*FLIGHT, "late"), on=FLIGHT, how="left", maintain_order="left")
    rows = _plane(rows, tables["planes"].collect())
    rows = _weather(rows, tables["weather"].collect())
    rows = _history(rows, arrivals)
    return rows.lazy()


def _schedule(flights: pl.DataFrame) -> pl.DataFrame:
    local = pl.col("sched_dep_time").dt.convert_time_zone("America/New_York")
    hour = pl.col("sched_dep_time").dt.truncate("1h")
    return flights.with_columns(
        (pl.col("sched_dep_time") - HORIZON).alias("decision_at"),
        pl.col("sched_dep_hour").cast(pl.String).alias("hour"),
        local.dt.weekday().cast(pl.String).alias("weekday"),
        (local.dt.hour().cast(pl.Float64) + local.dt.minute() / 60).alias("time_of_day"),
        (pl.col("sched_arr_time") - pl.col("sched_dep_time"))
        .dt.total_minutes()
        .alias("sched_minutes"),
        pl.len().over("origin", hour).alias("origin_departures"),
        pl.len().over("carrier", "origin", hour).alias("carrier_departures"),
        pl.len().over("dest", hour).alias("dest_departures"),
    )


def _arrivals(arrivals: pl.DataFrame, flights: pl.DataFrame) -> pl.DataFrame:
    """Outcomes: late or not (null unless landed), cancelled or not, and by how much."""
    landed = pl.col("status") == "landed"
    keyed = flights.select(*FLIGHT, "dest", "tailnum", "hour")
    return arrivals.join(keyed, on=FLIGHT, how="inner").with_columns(
        pl.when(landed).then(pl.col("arr_delay") > LATE_MINUTES).alias("late"),
        pl.when(landed).then(pl.col("arr_delay").clip(-60, 240)).alias("delay"),
        (pl.col("status") == "cancelled").alias("cancelled"),
    )


def _plane(rows: pl.DataFrame, planes: pl.DataFrame) -> pl.DataFrame:
    built = pl.col("year").alias("built")
    known = planes.select("tailnum", "seats", "engines", "manufacturer", built)
    age = pl.col("decision_at").dt.year() - pl.col("built")
    joined = rows.join(known, on="tailnum", how="left", maintain_order="left")
    return joined.with_columns(age.alias("plane_age")).drop("built")


def _weather(rows: pl.DataFrame, weather: pl.DataFrame) -> pl.DataFrame:
    measured = ["temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib"]
    readable = weather.with_columns((pl.col("observed_at") + WEATHER_LAG).alias("known_at"))
    joined = latest(rows, readable, columns=measured, by=["origin"], within=timedelta(hours=6))
    return trailing_mean(
        joined, readable, name="precip_6h", value="precip", span=timedelta(hours=6), by=["origin"]
    )


def _history(rows: pl.DataFrame, arrivals: pl.DataFrame) -> pl.DataFrame:
    for name, by, hours in RECENT:
        span = timedelta(hours=hours)
        rows = trailing_mean(
            rows,
            arrivals,
            name=name,
            value="late",
            span=span,
            by=by,
            prior=PRIOR_LATE,
            weight=PRIOR_FLIGHTS,
        )
    for name, by, days in HISTORY:
        rows = trailing_mean(
            rows,
            arrivals,
            name=name,
            value="late",
            span=timedelta(days=days),
            by=by,
            prior=PRIOR_LATE,
            weight=PRIOR_FLIGHTS,
        )
    six = timedelta(hours=6)
    rows = trailing_mean(
        rows, arrivals, name="origin_delay_6h", value="delay", span=six, by=["origin"]
    )
    rows = trailing_mean(rows, arrivals, name="all_cancelled_6h", value="cancelled", span=six)
    rows = trailing_mean(
        rows, arrivals, name="origin_cancelled_6h", value="cancelled", span=six, by=["origin"]
    )
    return _same_plane(rows, arrivals)


def _same_plane(rows: pl.DataFrame, arrivals: pl.DataFrame) -> pl.DataFrame:
    """How the same plane's last known flight ended, and how many hours ago."""
    last = arrivals.filter(pl.col("tailnum").is_not_null()).select(
        "tailnum",
        "known_at",
        pl.col("delay").alias("plane_last_delay"),
        pl.col("known_at").alias("plane_last_at"),
    )
    joined = latest(
        rows,
        last,
        columns=["plane_last_delay", "plane_last_at"],
        by=["tailnum"],
        within=timedelta(hours=24),
    )
    since = (pl.col("decision_at") - pl.col("plane_last_at")).dt.total_minutes() / 60
    return joined.with_columns(since.alias("plane_last_hours")).drop("plane_last_at")
