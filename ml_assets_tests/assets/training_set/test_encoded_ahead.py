"""Shards that processes of their own encode, each with its partitions: nobody encodes them again.

As on a cluster: the processes share a bucket, a snapshot store and no disk.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ml_assets.graph.inputs import require_record
from ml_assets.spec.program import SHARD_FILE
from ml_assets.store.pipeline_context import PipelineState, open_pipeline
from ml_assets_tests.servers.s3 import BUCKET, S3Server, s3_server
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World

NAME = "deliveries"
HALVES = ("2024-01-08...2024-02-05", "2024-02-12...2024-03-18")
"""Five weeks of features, and six."""
SHARDS = f"state/shards/{NAME}/"


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as found:
        yield found


@pytest.fixture(scope="module")
def world(store: S3Server, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Eleven weeks of features, made by two processes at the same time."""
    bucket = {"ML_ASSETS_OBJECTS": f"s3://{BUCKET}/state", "AWS_ENDPOINT_URL": store.endpoint}
    found = World(tmp_path_factory.mktemp("ahead"), bucket)
    deliveries.plant(found.pipelines, found.sources)
    found.cli("run", NAME, "--through", "derived_table")
    running = [_make(found, half, f"disk-{number}") for number, half in enumerate(HALVES)]
    for process in running:
        said, _ = process.communicate(timeout=240)
        assert process.returncode == 0, said
    return found


def _make(world: World, weeks: str, disk: str) -> "subprocess.Popen[str]":
    """Begin what a pod of a backfill runs."""
    command = [sys.executable, "-m", "dagster", "asset", "materialize"]
    command += ["-m", "ml_assets.definitions", "--select", f"{NAME}/feature_set"]
    environment = {
        **world.environment,
        "DAGSTER_HOME": str(world.settings.dagster_home),
        "ML_ASSETS_CACHE": str(world.root / disk),
    }
    return subprocess.Popen(
        [*command, "--partition-range", weeks],
        env=environment,
        cwd=world.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _now(world: World) -> PipelineState:
    return open_pipeline(NAME, world.settings).now()


def _keys(store: S3Server, end: str) -> set[str]:
    return {key for key in store.everything() if key.startswith(SHARDS) and key.endswith(end)}


def test_the_set_of_two_processes_is_that_of_one_and_none_of_its_shards_is_encoded_again(
    world: World, store: S3Server
) -> None:
    encoded = _keys(store, SHARD_FILE)
    assert len(encoded) == 11, "each partition's, before there is any set"
    said = world.cli("run", NAME, "--through", "training_set")
    assert "11 shards: 0 encoded, 0 as in the set before, 11 encoded with their partitions" in said
    assert _keys(store, SHARD_FILE) == encoded
    record = require_record(_now(world), _now(world).address("training_set"))
    assert world.page(NAME, "training_set")["shards_encoded"] == 0
    cached = world.settings.cache / "shards" / NAME
    assert [one.name for one in cached.iterdir()] == [record.data_version], "none was brought"

    alone = replace(world, extra={})
    shutil.rmtree(alone.root / "state" / "objects", ignore_errors=True)
    said = alone.cli("run", NAME, "--through", "training_set", "--fresh")
    assert "11 shards: 11 encoded, 0 as in the set before\n" in said + "\n"
    again = require_record(_now(alone), _now(alone).address("training_set"))
    assert again.data_version == record.data_version


def test_a_shard_that_is_gone_is_encoded_again_to_the_same_set(
    world: World, store: S3Server
) -> None:
    before = require_record(_now(world), _now(world).address("training_set")).data_version
    lost = sorted(_keys(store, SHARD_FILE))[0]
    store.client.delete_object(Bucket=BUCKET, Key=lost)
    shutil.rmtree(world.settings.cache)
    said = world.cli("run", NAME, "--through", "training_set", "--fresh")
    assert "11 shards: 1 encoded, 10 as in the set before" in said
    assert require_record(_now(world), _now(world).address("training_set")).data_version == before
    assert lost in _keys(store, SHARD_FILE)
