"""With a real daemon: a week lands, and everything up to the release follows without a hand."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.ui import ask, serving
from ml_assets_tests.worlds.world import World

SENSOR = '{repositoryName: "__repository__", repositoryLocationName: "ml_assets", sensorName: "%s"}'
RUNS = """{ runsOrError { ... on Runs {
  results { runId jobName status tags { key value } } } } }"""
TICKS = """{ sensorOrError(sensorSelector: %s) { ... on Sensor { sensorState {
  ticks(limit: 50) { status skipReason error { message } runIds } } } } }"""
PATIENCE = 480
"""Seconds for four runs, each of them behind a tick of the sensor (30 s) and the queue (5 s)."""


@pytest.mark.daemon
@pytest.mark.timeout(900)
def test_a_week_that_lands_becomes_a_release_and_every_step_says_why(tmp_path: Path):
    world = World(tmp_path).plant(deliveries, automation="{landing: {retrain: true}}")
    world.cli("run", "deliveries")
    with serving(world) as address:
        deliveries.land(world.sources, 13)
        runs = _wait_for_the_model(address)
        ticks = _ticks(address)
    assert [run["jobName"].removeprefix("deliveries__") for run in runs] == [
        "sources",
        "table_closed_orders",
        "features",
        "refresh",
    ]
    for run in runs:
        tags = {tag["key"]: tag["value"] for tag in run["tags"]}
        assert run["status"] == "SUCCESS"
        assert tags["trigger"] == "landing"
        assert tags["why"]
    assert all(tick["runIds"] or tick["skipReason"] for tick in ticks), ticks
    assert sum(len(tick["runIds"]) for tick in ticks) == len(runs)

    status = world.status("deliveries")
    assert status["release"]["decision"] == "passed"
    new = {(s["key"], s["partition"]): s for s in status["stages"]}
    model = new[("deliveries/trained_model", None)]
    assert model["run"] == runs[-1]["runId"]
    released = {i["key"]: i["version"] for i in status["release"]["inputs"]}
    assert released["deliveries/trained_model"] == model["version"]
    # the daemon's runs leave the very records that the command line would
    assert "\nmake" not in "\n" + world.cli("run", "deliveries")


def _wait_for_the_model(address: str) -> list[dict[str, Any]]:
    """The daemon's runs, oldest first, once the model's run has ended."""
    deadline = time.monotonic() + PATIENCE
    runs: list[dict[str, Any]] = []
    while time.monotonic() < deadline:
        found = ask(address, RUNS)["runsOrError"]["results"]
        runs = [run for run in reversed(found) if run["jobName"].startswith("deliveries__")]
        ended = [run for run in runs if run["status"] in ("SUCCESS", "FAILURE")]
        if any(r["jobName"] == "deliveries__refresh" or r["status"] == "FAILURE" for r in ended):
            return runs
        time.sleep(2)
    raise AssertionError(json.dumps([runs, _ticks(address)], indent=1))


def _ticks(address: str) -> list[dict[str, Any]]:
    """Those that have ended."""
    sensor = ask(address, TICKS % (SENSOR % "deliveries__landing"))["sensorOrError"]
    return [t for t in sensor["sensorState"]["ticks"] if t["status"] != "STARTED"]
