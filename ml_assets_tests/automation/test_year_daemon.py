"""Three weeks of flights with a real daemon, which dies with all its processes in the middle."""

import time
from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ml_assets.extras.demo.outside_world import FIRST_WEEK, land, lay_out
from ml_assets_tests.worlds import flight_year
from ml_assets_tests.worlds.ui import ask, serving
from ml_assets_tests.worlds.world import World

LANDED = 5
"""Weeks that are there before: four to look back at, and one with features."""
RUNS = """{ runsOrError { ... on Runs { results { runId jobName status } } } }"""
PATIENCE = 600
"""Seconds for two runs, each behind a tick of the sensor (30 s) and the queue (5 s)."""

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(2400)]


def test_each_of_three_weeks_is_made_once_though_the_daemon_is_killed_in_the_second(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    flight_year.plant(world.pipelines, world.sources, _that_lands)
    lay_out(world.sources, arrived=LANDED)
    world.cli("run", flight_year.NAME, "--through", "feature_set")
    with serving(world) as address:
        (first,) = land(world.sources)
        _wait(lambda: str(first) in _made(world, "feature_set"), address)
    with serving(world, killed=True) as address:
        (second,) = land(world.sources)
        _wait(lambda: _at_work(address), address)
    assert str(second) not in _made(world, "feature_set")
    with serving(world) as address:
        _wait(lambda: str(second) in _made(world, "feature_set"), address)
        (third,) = land(world.sources)
        _wait(lambda: str(third) in _made(world, "feature_set"), address)
        _wait(lambda: not _at_work(address), address)
    weeks = [str(_week(n)) for n in range(LANDED + 3)]
    assert _made(world, "validated_table", "flights") == dict.fromkeys(weeks, 1)
    assert _made(world, "feature_set") == dict.fromkeys(weeks[4:], 1)
    with world.instance() as instance:
        runs = instance.get_runs(filters=dg.RunsFilter(tags={"pipeline": flight_year.NAME}))
    ended = Counter(run.status for run in runs)
    assert ended.keys() <= {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE}
    assert ended[dg.DagsterRunStatus.FAILURE] <= 1  # that of the dead daemon, and it says so


def _that_lands(attributes: dict[str, Any]) -> None:
    attributes["automation"] = {"landing": {"retrain": False}}


def _week(number: int) -> date:
    return FIRST_WEEK + timedelta(weeks=number)


def _made(world: World, *key: str) -> dict[str, int]:
    """In how many runs each partition was published."""
    asset = dg.AssetKey([flight_year.NAME, *key])
    with world.instance() as instance:
        events = instance.fetch_materializations(asset, limit=1000).records
    runs = {(str(event.partition_key), event.run_id) for event in events}
    return dict(Counter(partition for partition, _ in runs))


def _runs(address: str) -> list[dict[str, Any]]:
    """Those of the year: the demo's own pipeline takes in the same weeks."""
    found = ask(address, RUNS)["runsOrError"]["results"]
    return [run for run in found if run["jobName"].startswith(flight_year.NAME)]


def _at_work(address: str) -> bool:
    return any(run["status"] == "STARTED" for run in _runs(address))


def _wait(until: Callable[[], bool], address: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < deadline, _runs(address)
        time.sleep(1)
