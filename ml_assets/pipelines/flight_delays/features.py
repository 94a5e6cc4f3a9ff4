"""The features known two hours before a scheduled departure, to predict whether the flight arrives
late.

Schedule, plane, congestion, the last observed weather, and how flights that had landed by then
had fared. Nothing of the flight itself: it has not left.
"""

from collections.abc import Mapping
from datetime import timedelta

import narwhals as nw

from ml_assets.assets.feature_set.history_features import latest, trailing_mean
from ml_assets.assets.feature_set.portable import Frame, portable
from ml_assets.spec.window import Window

HORIZON = timedelta(hours=2)
"""Decided early enough to rebook a connection."""
LATE_MINUTES = 15
WEATHER_LAG = timedelta(minutes=30)
"""From an observation to the moment it can be read."""
HOURS = 1 / 60
"""Of a minute. Engines divide by a number in two ways, and multiply in one."""
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


@portable
def build(tables: Mapping[str, Frame], window: Window) -> Frame:
    """One row for each flight scheduled to depart in the window."""
    flights = _schedule(tables["flights"])
    arrivals = _arrivals(tables["arrivals"], flights)
    rows = flights.filter(nw.col("sched_dep_time").is_between(window.start, window.end, "left"))
    rows = rows.join(arrivals.select(*FLIGHT, "late"), on=FLIGHT, how="left")
    rows = _plane(rows, tables["planes"])
    rows = _weather(rows, tables["weather"])
    rows = _history(rows, arrivals)
    return rows


def _schedule(flights: Frame) -> Frame:
    minute = nw.col("sched_dep_time").dt.minute()
    flights = flights.with_columns(nw.col("sched_dep_time").dt.truncate("1h").alias("_hour"))
    return flights.with_columns(
        (nw.col("sched_dep_time") - HORIZON).alias("decision_at"),
        nw.col("sched_dep_hour").cast(nw.String).alias("hour"),
        nw.col("flight_date").dt.weekday().cast(nw.String).alias("weekday"),
        (nw.col("sched_dep_hour").cast(nw.Float64) + minute * HOURS).alias("time_of_day"),
        (nw.col("sched_arr_time") - nw.col("sched_dep_time"))
        .dt.total_minutes()
        .alias("sched_minutes"),
        nw.len().over("origin", "_hour").alias("origin_departures"),
        nw.len().over("carrier", "origin", "_hour").alias("carrier_departures"),
        nw.len().over("dest", "_hour").alias("dest_departures"),
    ).drop("_hour")


def _arrivals(arrivals: Frame, flights: Frame) -> Frame:
    """Outcomes: late or not (null unless landed), cancelled or not, and by how much."""
    landed = nw.col("status") == "landed"
    keyed = flights.select(*FLIGHT, "dest", "tailnum", "hour")
    return arrivals.join(keyed, on=FLIGHT, how="inner").with_columns(
        nw.when(landed).then(nw.col("arr_delay") > LATE_MINUTES).alias("late"),
        nw.when(landed).then(nw.col("arr_delay").clip(-60, 240)).alias("delay"),
        (nw.col("status") == "cancelled").alias("cancelled"),
    )


def _plane(rows: Frame, planes: Frame) -> Frame:
    built = nw.col("year").alias("built")
    known = planes.select("tailnum", "seats", "engines", "manufacturer", built)
    age = nw.col("decision_at").dt.year() - nw.col("built")
    joined = rows.join(known, on="tailnum", how="left")
    return joined.with_columns(age.alias("plane_age")).drop("built")


def _weather(rows: Frame, weather: Frame) -> Frame:
    measured = ["temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib"]
    readable = weather.with_columns((nw.col("observed_at") + WEATHER_LAG).alias("known_at"))
    joined = latest(rows, readable, columns=measured, by=["origin"], within=timedelta(hours=6))
    return trailing_mean(
        joined, readable, name="precip_6h", value="precip", span=timedelta(hours=6), by=["origin"]
    )


def _history(rows: Frame, arrivals: Frame) -> Frame:
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


def _same_plane(rows: Frame, arrivals: Frame) -> Frame:
    """How the same plane's last known flight ended, and how many hours ago."""
    order = {"flight": "_flight", "sched_dep_time": "_departure"}  # of flights known at one moment
    last = arrivals.filter(~nw.col("tailnum").is_null()).select(
        "tailnum",
        "known_at",
        *(nw.col(column).alias(name) for column, name in order.items()),
        nw.col("delay").alias("plane_last_delay"),
        nw.col("known_at").alias("plane_last_at"),
    )
    joined = latest(
        rows,
        last,
        columns=[*order.values(), "plane_last_delay", "plane_last_at"],
        by=["tailnum"],
        within=timedelta(hours=24),
    )
    since = (nw.col("decision_at") - nw.col("plane_last_at")).dt.total_minutes() * HOURS
    return joined.with_columns(since.alias("plane_last_hours")).drop(
        *order.values(), "plane_last_at"
    )
