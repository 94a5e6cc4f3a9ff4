"""A release that does worse on what it served is trained again: log, labels, sensors, run."""

import asyncio
import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from ml_assets.actions.export import export_release
from ml_assets.actions.render_release import read_handover
from ml_assets.extras.serving.entry import served_tick
from ml_assets.extras.serving.prediction_log import Answered, PredictionLog
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import stages
from ml_assets.settings import read_settings
from ml_assets.store.pipeline_context import Pipeline, open_pipeline
from ml_assets_tests.automation.conftest import World, make_it_quick
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World as Folders

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(900)]
DRIFT = "{seasonal: {back: 6, around: 0}, retrain: {cooldown: 1 hour, runs_per_day: 1}}"
ROLLOUT = "  release: {to: production, canary: {periods: 1}, rollout: {entity: [order]}}\n"
CHAMPION = "    - {kind: champion, margin: 10.0}\n"
NEW = ("2024-04-08", "2024-04-15")
"""The weeks that came after the release."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A model is released, and two weeks have come since that look as those before."""
    with pytest.MonkeyPatch.context() as environment, dg.instance_for_test() as instance:
        Folders(tmp_path).enter(environment)
        deliveries.plant(
            tmp_path / "pipelines",
            tmp_path / "sources",
            weeks=14,
            automation="{landing: {}}",
            drift=DRIFT,
        )
        found = World(tmp_path, instance)
        spec = found.folder / "defs.yaml"
        make_it_quick(spec)
        gated = spec.read_text().replace("at_least: 0.01}\n", f"at_least: 0.01}}\n{CHAMPION}")
        spec.write_text(gated + ROLLOUT)
        found.settle()
        job = found.defs.resolve_job_def("deliveries__refresh")
        assert job.execute_in_process(instance=instance).success
        deliveries.land(found.sources, 16)
        found.settle()
        yield found


async def serve(pipeline: Pipeline, model: str, *, right: bool) -> None:
    """Log what the release said of every order of the new weeks, three hours ago."""
    log, state = PredictionLog(pipeline), pipeline.now()
    for number, week in enumerate(NEW):
        rows = state.scan(state.address("feature_set", partition=week)).collect()
        said = pl.when(pl.col("late") == right).then(0.9).otherwise(0.1)
        moment = datetime.now(UTC) - timedelta(hours=3) + timedelta(seconds=number)
        key, outputs = (
            {"order": [*rows["order"]]},
            {"probability": [*rows.select(said).to_series()]},
        )
        name = f"request-{number}"
        log.add(Answered(moment, name, range(len(rows)), "production", model, 0.01, key, outputs))
    await log.flush()
    log.close()


def judge_what_was_served(world: World) -> None:
    """As the daemon does: an hour's table, then the periods whose labels are there."""
    defs = world.defs
    found = served_tick(open_pipeline("deliveries", read_settings()), None, world.instance)
    for one in found.dynamic_partitions_requests or ():
        world.instance.add_dynamic_partitions(one.partitions_def_name, [*one.partition_keys])
    [hour] = list(found.run_requests or ())
    job = defs.resolve_job_def("deliveries__predictions")
    assert job.execute_in_process(
        instance=world.instance, partition_key=hour.partition_key, tags=hour.tags
    ).success
    (periods,) = world.asks_for("labels")
    job = defs.resolve_job_def("deliveries__online_evaluation")
    assert job.execute_in_process(instance=world.instance, tags=periods.tags).success
    assert not world.tick("labels").run_requests


@pytest.mark.parametrize("right", [True, False])
def test_a_release_that_decays_on_its_traffic_is_trained_again(world: World, right: bool) -> None:
    pipeline = open_pipeline("deliveries", read_settings())
    before = stages(read(pipeline.store, "deliveries"))
    assert "within its bounds" in world.says("drift"), "nothing of the data has moved"
    asyncio.run(serve(pipeline, before["production"], right=right))
    judge_what_was_served(world)
    if right:
        assert "within its bounds" in world.says("drift")
        folder = export_release(pipeline, world.root / "export").folder
        profile = hashlib.sha256((folder / "baseline.json").read_bytes()).hexdigest()
        assert read_handover(folder).drift_profile == profile, "what new rows are compared with"
        return
    (request,) = world.asks_for("drift")
    assert (request.job_name, request.tags["trigger"]) == ("deliveries__refresh", "drift")
    assert "the log-loss of what was served rose" in request.tags["why"]
    assert all(week in request.tags["why"] for week in NEW)
    assert world.execute(request)
    after = stages(read(pipeline.store, "deliveries"))
    assert after["production"] == before["production"]
    assert after["canary"] != before["production"], "a new model is on its way"
    assert not world.tick("drift").run_requests, "it is asked for once"
