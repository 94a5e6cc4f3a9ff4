"""With a real daemon: a run that fails is told to a webhook once, with a link that leads to it."""

import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.listeners import webhook
from ml_assets_tests.worlds.ui import ask, serving
from ml_assets_tests.worlds.world import World

WEEK = "2024-01-01"
TICKS = """{ sensorOrError(sensorSelector: {repositoryName: "__repository__",
  repositoryLocationName: "ml_assets", sensorName: "alerts"}) { ... on Sensor { sensorState {
  ticks(limit: 50) { status skipReason error { message } } } } } }"""
RUN = """{ runOrError(runId: "%s") { ... on Run { status jobName tags { key value } } } }"""
PATIENCE = 480
"""Seconds for two runs, each behind a tick of the sensor (30 s) and the queue (5 s)."""
LATER = 3
"""Ticks of the alerts sensor (60 s each) after the message, to see that it is the only one."""


@pytest.mark.daemon
@pytest.mark.timeout(1500)
def test_a_run_that_failed_is_told_once_and_the_link_leads_to_it(tmp_path: Path) -> None:
    with webhook() as hook:
        addresses = {"ML_ASSETS_ALERTS": f"{hook.url}/s3cr3t", "no_proxy": "127.0.0.1"}
        world = World(tmp_path, addresses).plant(deliveries, weeks=1, automation="{landing: {}}")
        orders = world.sources / "orders" / f"{WEEK}.csv"
        deliveries.deliver(orders, orders.read_text().replace(",north", ",north,too,many", 1))
        with serving(world) as address:
            _wait(lambda: bool(hook.bodies), address)
            told = len(_ticks(address))
            _wait(lambda: len(_ticks(address)) >= told + LATER, address)
            (body,) = [one for one in hook.bodies if one["pipeline"] == "deliveries"]
            assert body["kind"] == "failed run"
            assert f"orders/{WEEK}.csv, line " in body["text"]
            assert body["link"].startswith(f"{address}/runs/")
            with urllib.request.urlopen(body["link"], timeout=30) as page:
                assert page.status == 200
            run = ask(address, RUN % body["link"].rpartition("/")[2])["runOrError"]
            assert run["status"] == "FAILURE"
            tags = {tag["key"]: tag["value"] for tag in run["tags"]}
            assert tags["pipeline"] == "deliveries"
            ticks = _ticks(address)
        assert all(tick["skipReason"] and not tick["error"] for tick in ticks), ticks
        assert "1 open." in [tick["skipReason"] for tick in ticks], "it lasts, and is told no more"
        assert "s3cr3t" not in str(ticks) + (tmp_path / "ui.log").read_text()


def _ticks(address: str) -> list[dict[str, Any]]:
    """Those that have ended, the newest first."""
    state = ask(address, TICKS)["sensorOrError"]["sensorState"]
    return [tick for tick in state["ticks"] if tick["status"] != "STARTED"]


def _wait(until: Callable[[], bool], address: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < deadline, _ticks(address)
        time.sleep(1)
