"""What was served is held to the labels that came: champion and canary, with interval, by slice."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from ml_assets.definitions import build
from ml_assets.extras.serving.entry import labels_tick
from ml_assets.extras.serving.prediction_log import Answered, PredictionLog
from ml_assets.spec.gates import Target
from ml_assets.store.pipeline_context import Pipeline, open_pipeline
from ml_assets_tests.records.conftest import A, B
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World

pytestmark = pytest.mark.daemon
WEEK = "2024-03-18"
THEN = datetime.now(UTC) - timedelta(hours=3)
HOUR = f"{THEN:%Y-%m-%dT%H}"


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def log(
    pipeline: Pipeline,
    *answers: tuple[Target, str, Sequence[int], Sequence[float]],
    at: datetime | None = None,
) -> None:
    async def written() -> None:
        server = PredictionLog(pipeline)
        for number, (stage, model, orders, said) in enumerate(answers):
            moment, key = (at or THEN) + timedelta(seconds=number), {"order": [*orders]}
            places = range(len(orders))
            outputs = {"probability": [*said]}
            name = f"request-{number}"
            server.add(Answered(moment, name, places, stage, model, 0.01, key, outputs))
        await server.flush()
        server.close()

    asyncio.run(written())


def make(world: World, job: str, partition: str) -> None:
    with world.instance() as instance, pytest.MonkeyPatch.context() as environment:
        world.enter(environment)
        defs = build(world.settings, only="deliveries")
        instance.add_dynamic_partitions("deliveries__served_hours", list({HOUR, partition}))
        found = defs.resolve_job_def(f"deliveries__{job}")
        assert found.execute_in_process(instance=instance, partition_key=partition).success


def test_what_was_served_is_held_to_what_came_true(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    world = World(tmp_path).plant(deliveries)
    spec = world.pipelines / "deliveries" / "defs.yaml"
    rollout = "  release: {to: production, canary: {periods: 1}, rollout: {entity: [order]}}\n"
    spec.write_text(spec.read_text() + rollout)
    world.cli("run", "deliveries", "--through", "feature_set")
    pipeline = open_pipeline("deliveries", world.settings)
    features = pipeline.now().scan(pipeline.address("feature_set", partition=WEEK)).collect()
    late = features["late"].cast(pl.Float64).to_list()
    orders = features["order"].to_list()
    good = [0.9 if one else 0.1 for one in late]
    half = len(orders) // 2
    log(
        pipeline,
        ("production", A, orders[:half], good[:half]),
        ("canary", B, orders[half:], [1 - one for one in good[half:]]),  # always wrong
        ("production", A, orders[:5], [1 - one for one in good[:5]]),  # asked again: not counted
    )
    assert not labels_tick(pipeline, instance).run_requests, "no hour is published"
    make(world, "predictions", HOUR)
    make(world, "online_evaluation", WEEK)
    address = pipeline.address("online_evaluation", partition=WEEK)
    state = pipeline.now()
    report = json.loads(state.read_bytes(address.file("report.json")))
    assert report["loss"] == "log-loss"
    canary, champion = report["models"]
    assert (canary["stage"], canary["model"]) == ("canary", B)
    assert (champion["model"], champion["units"]) == (A, half)
    assert champion["loss"]["value"] == pytest.approx(0.10536, abs=1e-4)
    assert canary["loss"]["value"] == pytest.approx(2.30259, abs=1e-4)
    assert {one["column"] for one in champion["slices"]} == {"depot"}
    assert sum(one["units"] for one in champion["slices"]) <= half
    difference = report["difference"]
    assert difference["low"] <= difference["value"] <= difference["high"]
    assert difference["value"] == pytest.approx(2.30259 - 0.10536, abs=1e-3)
    record = state.record(address)
    assert record and {one.key for one in record.inputs} == {
        "deliveries/feature_set",
        "deliveries/predictions",
    }
    # features that were made since traffic began are due, that week's are looked at already
    (request,) = labels_tick(pipeline, instance).run_requests or ()
    ends = [request.tags[f"dagster/asset_partition_range_{end}"] for end in ("start", "end")]
    assert ends == ["2024-01-08", "2024-03-11"]

    # answers of an hour before the evaluation that are published after it count, too
    late_hour = f"{record.time:%Y-%m-%dT%H}"
    assert late_hour != HOUR
    log(pipeline, ("production", A, orders[:5], good[:5]), at=record.time)
    make(world, "predictions", late_hour)
    (request,) = labels_tick(pipeline, instance).run_requests or ()
    assert request.tags["dagster/asset_partition_range_end"] >= WEEK
    make(world, "online_evaluation", WEEK)
    (request,) = labels_tick(pipeline, instance).run_requests or ()
    assert request.tags["dagster/asset_partition_range_end"] == "2024-03-11", "seen now"
