"""Shards that processes of their own encode, each with its partitions: nobody encodes them again.

As on a cluster: the processes share a bucket, a snapshot store and no disk.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import dagster as dg
import pytest

from ml_assets.assets.training_set.encoded_set import EncodedSet, encode_splits, encode_window
from ml_assets.assets.training_set.window import read_splits, resolve_window
from ml_assets.spec.training_program import SHARD_FILE
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.servers.s3 import BUCKET, S3Server, s3_server
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(900)]  # processes beside each other
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
    found = World(tmp_path_factory.mktemp("ahead"), bucket).plant(deliveries)
    found.cli("run", NAME, "--through", "derived_table")
    running = [_make(found, half) for half in HALVES]
    for process in running:
        said, _ = process.communicate(timeout=240)
        assert process.returncode == 0, said
    return found


def _make(world: World, weeks: str) -> "subprocess.Popen[str]":
    """Begin what a pod of a backfill runs."""
    command = [sys.executable, "-m", "dagster", "asset", "materialize"]
    command += ["-m", "ml_assets.definitions", "--select", f"{NAME}/feature_set"]
    return subprocess.Popen(
        [*command, "--partition-range", weeks],
        env={**world.environment, "DAGSTER_HOME": str(world.settings.dagster_home)},
        cwd=world.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _encoded(world: World) -> EncodedSet:
    return encode_window(
        dg.build_asset_context().log, open_pipeline(NAME, world.settings).now(), None
    )


def _keys(store: S3Server, end: str) -> set[str]:
    return {key for key in store.everything() if key.startswith(SHARDS) and key.endswith(end)}


def test_the_set_of_two_processes_is_that_of_one_and_none_of_its_shards_is_encoded_again(
    world: World, store: S3Server
) -> None:
    made = _keys(store, SHARD_FILE)
    assert len(made) == 11, "each partition's, before there is any set"
    shutil.rmtree(world.settings.cache)  # another pod has another disk
    world.cli("run", NAME, "--through", "training_set")
    assert world.page(NAME, "training_set")["shards"] == (
        "11 shards: 0 encoded, 0 as in the set before, 11 encoded with their partitions"
    )
    assert _keys(store, SHARD_FILE) == made
    version = world.data_version(NAME, "training_set")
    shutil.rmtree(world.settings.cache)
    alone = _encoded(replace(world, extra={}))
    assert (alone.written.encoded, alone.ref.digest) == (11, version)


def test_a_shard_that_is_gone_is_encoded_again_to_the_same_set(
    world: World, store: S3Server
) -> None:
    shutil.rmtree(world.settings.cache)
    before = _encoded(world)
    here = world.settings.cache / "shards" / NAME
    assert [one.name for one in here.iterdir()] == [before.ref.digest], "none was brought here"
    lost = sorted(_keys(store, SHARD_FILE))[0]
    store.client.delete_object(Bucket=BUCKET, Key=lost)
    shutil.rmtree(world.settings.cache)
    again = _encoded(world)
    assert (before.written.encoded, again.written.encoded) == (0, 1)
    assert before.ref.digest == again.ref.digest
    assert lost in _keys(store, SHARD_FILE)


def test_a_lost_shard_of_an_earlier_holdout_is_published_again(
    world: World, store: S3Server
) -> None:
    """Rolling origin encodes its sets so: the set is there, and one of its shards is not."""
    state = open_pipeline(NAME, world.settings).now()
    rows = read_splits(state, resolve_window(state, None))
    before = encode_splits(state, rows)
    shard = before.versions[sorted(before.versions)[0]].digest
    for key in (lost := {key for key in _keys(store, "") if f"/{shard}/" in key}):
        store.client.delete_object(Bucket=BUCKET, Key=key)
    shutil.rmtree(world.settings.cache)
    again = encode_splits(state, rows)
    assert lost and lost <= _keys(store, "")
    assert (again.ref.digest, again.encoded) == (before.ref.digest, 1)
