"""A year of real flights, week by week, by the ticks of the sensors: each week lands once.

Storms, the hours of daylight saving, a spoilt file, one that is no table, and one that is corrected
weeks later; a model as soon as there is data for it, and another where the flights drift away from
it. ML_ASSETS_TEST_YEAR=53 replays as many weeks; the first eight are replayed otherwise.
"""

import csv
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from ml_assets.actions.read_table import read_table
from ml_assets.extras.demo.outside_world import FIRST_WEEK, WEEKS, land
from ml_assets.records.ledger.chain import read
from ml_assets.settings import read_settings
from ml_assets.store.open import open_snapshots
from ml_assets_tests.automation.conftest import QUIET, World
from ml_assets_tests.worlds import flight_year
from ml_assets_tests.worlds.world import World as Folders

REPLAYED = int(os.environ.get("ML_ASSETS_TEST_YEAR", "8"))
WHOLE = pytest.mark.skipif(REPLAYED < WEEKS, reason="in the whole year: ML_ASSETS_TEST_YEAR=53")
STORM = date(2013, 2, 4)
"""Nemo: 8 and 9 February, when most flights were cancelled."""
SPRING, FALL = date(2013, 3, 4), date(2013, 10, 28)
"""An hour is missing; an hour comes twice."""
SPOILT = FIRST_WEEK + timedelta(weeks=3)
BROKEN = FIRST_WEEK + timedelta(weeks=5)
CORRECTED = FIRST_WEEK + timedelta(weeks=2)
FIRST_MODEL = FIRST_WEEK + timedelta(weeks=16)
"""Four weeks to look back at, and twelve to learn from and to be judged by."""

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(600 + 240 * REPLAYED)]


@dataclass
class Year:
    """What happened, for the tests to look at."""

    world: World
    asked: dict[date, list[dg.RunRequest]] = field(default_factory=dict)
    said: dict[date, str] = field(default_factory=dict)
    drift_asked: dict[date, list[dg.RunRequest]] = field(default_factory=dict)
    drift_said: dict[date, str] = field(default_factory=dict)

    @property
    def weeks(self) -> list[date]:
        return [FIRST_WEEK + timedelta(weeks=n) for n in range(REPLAYED)]

    def table(self, stage: str, week: date) -> pl.DataFrame:
        return read_table(
            f"{flight_year.NAME}/{stage}", str(week), settings=read_settings()
        ).collect()

    def made(self, *key: str) -> Counter[str]:
        """In how many runs each partition was materialized."""
        asset = dg.AssetKey([flight_year.NAME, *key])
        events = self.world.instance.fetch_materializations(asset, limit=5000).records
        runs = {(str(event.partition_key), event.run_id) for event in events}
        return Counter(partition for partition, _ in runs)


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Year]:
    root = tmp_path_factory.mktemp("year")
    with pytest.MonkeyPatch.context() as environment:
        Folders(root).enter(environment)
        for folder in ("state", "sources", "pipelines"):
            (root / folder).mkdir()
        flight_year.plant(root / "pipelines", root / "sources", _declare)
        with dg.instance_for_test(temp_dir=str(root)) as instance:
            year = Year(World(root, instance, name=flight_year.NAME))
            _replay(year)
            yield year


def _declare(attributes: dict[str, Any]) -> None:
    """The sensors of the demo, in the pace of a replay; and bounds that a short model can reach."""
    attributes["automation"] = {"landing": {}}
    retrain = {"cooldown": "1 minute", "runs_per_day": 100}
    attributes["drift"] = {**attributes["drift"], "retrain": retrain}
    within = {"quality_floor": {"at_least": 0.55}, "beats_carrier_hour": {"margin": -0.05}}
    attributes["gates"] = [
        gate | within.get(gate.get("name"), {})
        for gate in attributes["gates"]
        if gate["kind"] in ("bound", "baseline", "data_evidence")
    ]


def _replay(year: Year) -> None:
    landing = year.world.sources / "landing" / "flights"
    for number, week in enumerate(year.weeks):
        if number:
            land(year.world.sources)
        _spoil(landing, week)
        year.asked[week] = _settle(year.world, "landing")
        year.said[week] = year.world.says()
        if week == FIRST_MODEL:
            _first_model(year.world)
        if week >= FIRST_MODEL:
            year.drift_asked[week] = _settle(year.world, "drift")
            year.drift_said[week] = year.world.says("drift")


def _settle(world: World, sensor: str) -> list[dg.RunRequest]:
    """Tick and run until there is nothing to ask for."""
    asked: list[dg.RunRequest] = []
    for _ in range(12):
        requests = world.asks_for(sensor)
        if not requests:
            return asked
        for request in requests:
            world.execute(request)
        asked += requests
    raise AssertionError([request.tags["why"] for request in asked])


def _first_model(world: World) -> None:
    job = world.defs.resolve_job_def(f"{flight_year.NAME}__refresh")
    assert job.execute_in_process(
        instance=world.instance, run_config=QUIET, raise_on_error=False
    ).success


def _spoil(landing: Path, week: date) -> None:
    """What goes wrong outside in some of the weeks, and what is put right later."""
    file = landing / f"{week}.csv"
    if week == SPOILT:
        _rewrite(file, range(5), distance="-100")
    if week == BROKEN:
        (landing.parent / "whole.csv").write_bytes(file.read_bytes())
        file.write_bytes(b"\x80\x81 this was a spreadsheet\n")
    if week == BROKEN + timedelta(weeks=1):
        (landing.parent / "whole.csv").replace(landing / f"{BROKEN}.csv")
        _rewrite(landing / f"{CORRECTED}.csv", range(1), tailnum="N0CHNG")


def _rewrite(file: Path, rows: range, **values: str) -> None:
    with file.open(newline="") as handle:
        table = list(csv.DictReader(handle))
    for number in rows:
        table[number] |= values
    with file.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def test_every_week_lands_once(year: Year) -> None:
    times = year.made("validated_table", "flights")
    assert times == {str(week): 2 if week == CORRECTED else 1 for week in year.weeks}
    assert year.world.published("validated_table", "flights") == [str(w) for w in year.weeks]
    assert year.world.published("feature_set") == [str(week) for week in year.weeks[4:]]


def test_a_tick_with_nothing_to_do_says_so(year: Year) -> None:
    quiet = [said for week, said in year.said.items() if week != BROKEN]
    assert all("everything that landed is published" in said for said in quiet), quiet


def test_the_rows_of_a_spoilt_file_are_named_and_the_others_published(year: Year) -> None:
    kept = year.table("quarantine/flights", SPOILT)
    assert kept["distance"].to_list() == [-100] * 5
    assert kept.select(pl.col("flight").is_not_null().all()).item()
    whole = year.table("raw_snapshot/raw_flights", SPOILT)
    assert year.table("validated_table/flights", SPOILT).height + 5 == whole.height


def test_what_is_no_table_waits_and_is_taken_in_once_it_is_one(year: Year) -> None:
    failed = f"sources [{BROKEN}] failed in run"
    assert failed in year.said[BROKEN]
    after = year.asked[BROKEN + timedelta(weeks=1)]
    assert any(str(BROKEN) in request.tags["why"] for request in after)
    assert str(BROKEN) in year.world.published("feature_set")


def test_a_corrected_week_is_a_new_version_and_what_follows_is_made_again(year: Year) -> None:
    asked = year.asked[BROKEN + timedelta(weeks=1)]
    why = [request.tags["why"] for request in asked]
    assert any(str(CORRECTED) in reason and "changed" in reason for reason in why), why
    assert "N0CHNG" in year.table("validated_table/flights", CORRECTED)["tailnum"].to_list()


def test_a_storm_passes(year: Year) -> None:
    arrivals = year.table("validated_table/arrivals", STORM)
    assert (arrivals["status"] == "cancelled").mean() > 0.1  # pyright: ignore
    assert str(STORM) in year.world.published("feature_set")


@WHOLE
@pytest.mark.parametrize(("week", "hours"), [(SPRING, 167), (FALL, 169)])
def test_the_hours_of_daylight_saving_pass(year: Year, week: date, hours: int) -> None:
    observed = year.table("validated_table/weather", week)
    window = observed["observed_at"]
    span = window.max() - window.min()  # pyright: ignore
    assert abs(span - timedelta(hours=hours - 1)) <= timedelta(hours=1)
    assert window.dt.convert_time_zone("America/New_York").dt.date().min() == week
    assert str(week) in year.world.published("feature_set")


@WHOLE
def test_each_new_week_is_held_to_the_release_and_drift_trains_again_with_its_reason(
    year: Year,
) -> None:
    trainings = [request for asked in year.drift_asked.values() for request in asked]
    assert trainings, year.drift_said
    assert all(str(request.job_name).endswith("__refresh") for request in trainings)
    assert all(request.tags["trigger"] == "drift" for request in trainings)
    assert all("drift in " in request.tags["why"] for request in trainings)
    landed = [request for asked in year.asked.values() for request in asked]
    reports = [request for request in landed if str(request.job_name).endswith("__drift")]
    assert len(reports) >= len(year.drift_asked) - 1  # the model's own last week is not held to it
    assert all(year.drift_said.values())


@WHOLE
def test_every_model_of_the_year_was_decided_on(year: Year) -> None:
    store = open_snapshots(read_settings().snapshots)
    decisions = [e.decision for e in read(store, flight_year.NAME) if e.decision is not None]
    assert len({decision.evidence.model for decision in decisions}) > 1
    assert all(decision.reason for decision in decisions)
