"""On a cluster each partition is a run of its own; on a laptop a range is one run."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.workspace.load_target import ModuleTarget
from dagster._daemon.backfill import execute_backfill_iteration

from ml_assets.adapters.declare_asset import GPU_POOL
from ml_assets.component import build_pipeline
from ml_assets.spec.cluster import ClusterSpec
from ml_assets.spec.load import load_spec
from ml_assets_tests.automation.conftest import World
from ml_assets_tests.servers.s3 import BUCKET, S3Server
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.opened import on_cluster, pipeline_of
from ml_assets_tests.worlds.world import World as Folders

WEEKS = ["2024-01-01", "2024-01-08", "2024-01-15"]
AT_ONCE = {
    "module": "dagster._core.launcher.sync_in_memory_run_launcher",
    "class": "SyncInMemoryRunLauncher",
}


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    Folders(tmp_path).enter(monkeypatch)
    (tmp_path / "sources").mkdir()
    deliveries.plant(tmp_path / "pipelines", tmp_path / "sources", weeks=3, automation="{}")
    return tmp_path


@contextmanager
def a_daemon(room: Path, location: str) -> Iterator[Any]:
    """A real instance, and the workspace that its daemon sees: a code server of its own."""
    overrides = {"run_launcher": AT_ONCE}
    with dg.instance_for_test(overrides=overrides, temp_dir=str(room)) as instance:
        target = ModuleTarget(
            module_name=location,
            attribute=None,
            working_directory=None,
            location_name="ml_assets",
        )
        with create_test_daemon_workspace_context(target, instance) as workspace:
            yield workspace


def backfilled(workspace: Any) -> list[dg.DagsterRun]:
    """The runs that a backfill of three weeks of orders makes, when it is over."""
    instance: dg.DagsterInstance = workspace.instance
    request = workspace.create_request_context()
    instance.add_backfill(
        PartitionBackfill.from_asset_partitions(
            backfill_id="weeks",
            asset_graph=request.asset_graph,
            partition_names=WEEKS,
            asset_selection=[
                dg.AssetKey(["deliveries", "raw_snapshot", "raw_orders"]),
                dg.AssetKey(["deliveries", "validated_table", "orders"]),
            ],
            backfill_timestamp=datetime.now(UTC).timestamp(),
            tags={},
            dynamic_partitions_store=instance,
            all_partitions=False,
            title=None,
            description=None,
            run_config=None,
        )
    )
    for _ in range(10):
        list(execute_backfill_iteration(workspace, logging.getLogger("backfill")))
        backfill = instance.get_backfill("weeks")
        assert backfill is not None
        if backfill.status is not BulkActionStatus.REQUESTED:
            assert backfill.status is BulkActionStatus.COMPLETED_SUCCESS, backfill.status
            return list(instance.get_runs())
        for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED])):
            instance.launch_run(run.run_id, request)  # as the daemon does with what is due
    raise AssertionError("the backfill did not end")


def test_on_a_cluster_a_backfill_makes_a_run_for_each_partition(room: Path) -> None:
    with a_daemon(room, "ml_assets_tests.automation.fanned_out") as workspace:
        runs = backfilled(workspace)
        made = sorted(run.tags["dagster/asset_partition_range_start"] for run in runs)
        ends = sorted(run.tags["dagster/asset_partition_range_end"] for run in runs)
        held = [run.run_op_concurrency for run in runs]
    assert made == ends == WEEKS
    assert all(run.is_success for run in runs)
    assert not any(held), "a pool would make one wait for the other"


@pytest.fixture
def pipeline(room: Path) -> Callable[..., dg.Definitions]:
    """``pipeline(on_cluster, **cluster)``: the definitions of a spec that asks for such nodes."""
    folder = room / "pipelines" / "deliveries"

    def built(there: bool, **cluster: Any) -> dg.Definitions:
        spec = load_spec(folder).model_copy(update={"cluster": ClusterSpec(**cluster)})
        return build_pipeline(on_cluster(pipeline_of(folder, spec=spec), there))

    return built


def steps(defs: dg.Definitions) -> list[dg.AssetsDefinition]:
    return [asset for asset in defs.assets or () if isinstance(asset, dg.AssetsDefinition)]


def pools(defs: dg.Definitions) -> dict[str, set[str]]:
    """Which pools the steps of each stage hold."""
    found: dict[str, set[str]] = {}
    for asset in steps(defs):
        for key in asset.keys:
            found.setdefault(key.path[1], set()).update(filter(None, [asset.op.pool]))
    return found


@pytest.mark.parametrize(
    "stage", ["raw_snapshot", "validated_table", "derived_table", "feature_set"]
)
def test_each_partition_of_a_data_stage_is_a_run_on_a_cluster_and_a_range_is_one_on_a_laptop(
    pipeline: Callable[..., dg.Definitions], stage: str
) -> None:
    policies = {
        on_cluster: {
            asset.backfill_policy
            for asset in steps(pipeline(on_cluster))
            if asset.partitions_def is not None and next(iter(asset.keys)).path[1] == stage
        }
        for on_cluster in (True, False)
    }
    assert policies[True] == {dg.BackfillPolicy.multi_run(max_partitions_per_run=1)}
    assert policies[False] == {dg.BackfillPolicy.single_run()}


def test_training_on_gpus_queues_for_them_and_the_rest_for_its_pipeline(
    pipeline: Callable[..., dg.Definitions],
) -> None:
    found = pools(pipeline(True, gpus_per_node=2))
    assert found["trained_model"] == found["checkpoints"] == {GPU_POOL}
    assert found["training_set"] == found["released_model"] == {"deliveries"}
    assert found["feature_set"] == set()
    assert found["raw_snapshot"] == {"deliveries"}  # that of depots, which is read whole


def test_training_without_gpus_does_not_wait_for_them(
    pipeline: Callable[..., dg.Definitions],
) -> None:
    assert pools(pipeline(True, gpus_per_node=0))["trained_model"] == {"deliveries"}


def test_on_a_laptop_everything_is_in_the_pool_of_its_pipeline(
    pipeline: Callable[..., dg.Definitions],
) -> None:
    assert set().union(*pools(pipeline(False, gpus_per_node=2)).values()) == {"deliveries"}


def test_on_a_cluster_what_lands_is_taken_in_by_a_run_for_each_partition(
    plant: Callable[[int, str], World], bucket: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = plant(3, "{landing: {}}")
    monkeypatch.setenv("ML_ASSETS_LAUNCHER", "kubernetes")
    monkeypatch.setenv("ML_ASSETS_OBJECTS", f"s3://{BUCKET}/objects")
    monkeypatch.setenv("ML_ASSETS_TRAINING_IMAGE", f"a/b@sha256:{'0' * 64}")
    whole, *weeks = world.asks_for()
    ends = [f"dagster/asset_partition_range_{end}" for end in ("start", "end")]
    assert [[week.tags[end] for end in ends] for week in weeks] == [[key, key] for key in WEEKS]
    assert len({week.run_key for week in weeks}) == 3
    assert all(world.execute(request) for request in (whole, *weeks))
    assert world.published("validated_table", "orders") == WEEKS
    assert len(world.asks_for()) == 3  # the table that is made of them, again apart
