"""The demo's world is whole, safe to repeat, and its times are right."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ml_assets.assets.raw_snapshot.readers.read_source import look, read_source
from ml_assets.assets.validated_table.contract.compiled import audit
from ml_assets.assets.validated_table.contract.suite import load_contract
from ml_assets.errors import SourceError
from ml_assets.extras.demo.outside_world import land, lay_out
from ml_assets.spec.load import load_spec
from ml_assets.spec.partitions import PartitionsSpec, windows

PIPELINE = Path(__file__).parents[3] / "ml_assets" / "pipelines" / "flight_delays"

WEEKS = windows(
    PartitionsSpec(
        cadence="weekly",
        start=date(2012, 12, 31),
        end=date(2014, 1, 6),
        timezone="America/New_York",
        day_offset=1,
    ),
    datetime(2020, 1, 1, tzinfo=UTC),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("world")
    lay_out(root)
    return root


def schedule(root: Path, week: str) -> pl.DataFrame:
    return pl.read_csv(root / f"landing/flights/{week}.csv", try_parse_dates=True)


def events(root: Path, week: str) -> pl.DataFrame:
    files = sorted((root / f"arrivals/{week}").iterdir())
    lines = [line for file in files for line in file.read_text().splitlines()]
    frame = pl.DataFrame([json.loads(line) for line in lines], infer_schema_length=None)
    assert frame["offset"].to_list() == list(range(frame.height))
    times = pl.col("sched_dep_time", "landed_at", "known_at")
    return frame.with_columns(times.str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_zone="UTC"))


def content(root: Path) -> dict[str, tuple[int, bytes]]:
    files = (p for p in root.rglob("*") if p.is_file())
    return {str(p.relative_to(root)): (p.stat().st_mtime_ns, p.read_bytes()) for p in files}


def observed(root: Path) -> list[Any]:
    with closing(sqlite3.connect(root / "weather.db")) as connection:
        return connection.execute("SELECT * FROM weather ORDER BY observed_at, origin").fetchall()


def test_fifty_one_weeks_have_arrived_under_the_keys_of_the_partitions(world: Path):
    expected = [w.key for w in WEEKS[:51]]
    assert len(WEEKS) == 53
    assert sorted(p.stem for p in (world / "landing/flights").iterdir()) == expected
    assert sorted(p.stem for p in (world / "arrivals").iterdir()) == expected
    assert {p.name for p in (world / "reference").iterdir()} == {
        "planes.csv",
        "airports.csv",
        "airlines.csv",
    }


@pytest.mark.parametrize("week", [WEEKS[0], WEEKS[9], WEEKS[43]], ids=lambda w: w.key)
def test_a_week_holds_the_flights_of_its_span_across_clock_changes(world: Path, week: Any):
    times = schedule(world, week.key)["sched_dep_time"]
    assert (times.is_between(week.start, week.end, closed="left")).all()
    assert times.len() > 5000


def test_the_schedule_holds_no_outcome(world: Path):
    assert schedule(world, "2013-07-01").columns == [
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
    ]


def test_a_known_flight_has_the_right_times(world: Path):
    """UA 1545, 1 January, Newark 5:15 to Houston 8:19 Central: three hours and four minutes."""
    flight = schedule(world, "2012-12-31").filter(carrier="UA", flight=1545, origin="EWR")
    first = flight.sort("sched_dep_time").row(0, named=True)
    assert first["sched_dep_time"] == datetime(2013, 1, 1, 10, 15, tzinfo=UTC)
    assert first["sched_arr_time"] == datetime(2013, 1, 1, 14, 19, tzinfo=UTC)
    arrival = events(world, "2012-12-31").filter(carrier="UA", flight=1545, origin="EWR")
    landed = arrival.sort("sched_dep_time").row(0, named=True)
    assert (landed["arr_delay"], landed["landed_at"]) == (
        11,
        datetime(2013, 1, 1, 14, 30, tzinfo=UTC),
    )


def test_every_flight_ends_once_and_is_known_after_it_was_to_depart(world: Path):
    key = ["carrier", "flight", "origin", "sched_dep_time"]
    week = "2013-02-04"
    ended = events(world, week)
    planned = schedule(world, week)
    assert planned.join(ended, on=key, how="anti").is_empty()
    assert ended.height == planned.height == ended.select(key).unique().height
    assert (ended["known_at"] > ended["sched_dep_time"]).all()
    landed = ended.filter(status="landed")
    assert (landed["known_at"] == landed["landed_at"]).all()
    assert ended.filter(pl.col("status") != "landed")["arr_delay"].null_count() == (
        ended.height - landed.height
    )
    assert set(ended["status"]) == {"landed", "cancelled", "diverted"}


def test_the_weather_ends_with_the_last_week_that_arrived_and_keeps_its_impossible_wind(
    world: Path,
):
    rows = observed(world)
    assert rows[-1][1] == "2013-12-23 04:00:00.000000"
    assert [row[6] for row in rows if (row[6] or 0) > 150] == [1048.36058]


def test_no_value_is_written_as_nothing(world: Path):
    planes = (world / "reference/planes.csv").read_text()
    assert ",NA," not in planes
    assert ",," in planes


def test_laying_out_again_touches_nothing_and_restores_what_is_missing(world: Path):
    before = content(world)
    lay_out(world)
    assert content(world) == before
    lost = world / "landing/flights/2013-03-04.csv"
    lost.unlink()
    lay_out(world)
    assert {n: c for n, (_, c) in content(world).items()} == {n: c for n, (_, c) in before.items()}


def test_a_later_week_arrives_as_if_it_had_been_there_from_the_start(tmp_path: Path):
    for root, steps in ((tmp_path / "a", (1, 2)), (tmp_path / "b", (2,))):
        for arrived in steps:
            lay_out(root, arrived=arrived)
    first, second = (content(tmp_path / name) for name in "ab")
    assert first.keys() == second.keys()
    assert all(first[n][1] == second[n][1] for n in first if n != "weather.db")
    assert observed(tmp_path / "a") == observed(tmp_path / "b")


def test_the_default_pipeline_reads_it_and_its_contracts_find_the_two_bad_rows(world: Path):
    """One wind of 1048 mph, one airport with its coordinates mixed up, and nothing else."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, source in load_spec(PIPELINE).sources.items():
        contract = load_contract(PIPELINE / source.contract)
        urls = {source.connection: f"sqlite:///{world}/weather.db"} if source.kind == "sql" else {}
        if source.partitioned:
            landed = look(name, source, world, urls.__getitem__, WEEKS).keys
            assert landed == tuple(w.key for w in WEEKS[:51])
        chosen = [w for w in WEEKS if w.key in ("2012-12-31", "2013-02-11", "2013-10-28")]
        for window in chosen if source.partitioned else [None]:
            rows = read_source(name, source, world, urls.__getitem__, window).frame
            result = audit(rows, contract)
            assert result.passed, [r.reason for r in result.results if not r.passed]
            found.setdefault(name, []).extend(result.quarantined.to_dicts())
    assert {name: len(rows) for name, rows in found.items() if rows} == {
        "weather": 1,
        "airports": 1,
    }
    assert found["weather"][0]["wind_speed"] > 1000
    assert found["airports"][0]["faa"] == "EEN"


def test_a_number_of_weeks_that_the_data_does_not_have_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="1 to 53"):
        lay_out(tmp_path, arrived=54)


def test_the_next_weeks_land_whole_until_the_year_is_over(tmp_path: Path):
    with pytest.raises(SourceError, match="ml-assets demo"):
        land(tmp_path)
    lay_out(tmp_path, arrived=51)
    before = content(tmp_path)

    assert land(tmp_path) == [date(2013, 12, 23)]
    after = content(tmp_path)
    assert set(after) - set(before) == {
        "landing/flights/2013-12-23.csv",
        "arrivals/2013-12-23/000000000000.jsonl",
        "arrivals/2013-12-23/000000004096.jsonl",
    }
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {"weather.db"}

    with pytest.raises(SourceError, match=r"2 weeks cannot land: 52 .* 1 week can still"):
        land(tmp_path, weeks=2)
    assert land(tmp_path) == [date(2013, 12, 30)]
    whole = tmp_path / "whole"
    lay_out(whole, arrived=53)
    assert {n: c for n, (_, c) in content(whole).items() if n != "weather.db"} == {
        n: c
        for n, (_, c) in content(tmp_path).items()
        if n != "weather.db" and not n.startswith("whole")
    }
    assert observed(whole) == observed(tmp_path)
    with pytest.raises(SourceError, match="0 weeks can still"):
        land(tmp_path)
