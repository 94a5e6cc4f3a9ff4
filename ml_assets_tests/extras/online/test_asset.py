"""Features are served where they last: a file of a pod's disk is refused before it is written."""

from pathlib import Path

import dagster as dg
import pytest

from ml_assets.adapters.resources import StoresResource
from ml_assets.errors import SettingsError
from ml_assets.extras.online.asset import online_store
from ml_assets_tests.worlds.opened import pipeline_of


@dg.asset
def served(context: dg.AssetExecutionContext, stores: StoresResource) -> str:
    return type(online_store(stores.open(pipeline_of()), context.instance)).__name__


def made(instance: dg.DagsterInstance) -> str:
    """What a step of a run of this instance is given."""
    done = dg.materialize([served], instance=instance, resources={"stores": StoresResource()})
    return done.output_for_node("served")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ML_ASSETS_ONLINE", raising=False)
    return tmp_path / "home"


def test_a_file_is_refused_where_a_step_is_a_pod(
    runs_are_jobs: dg.DagsterInstance, home: Path
) -> None:
    with pytest.raises(SettingsError, match="ML_ASSETS_ONLINE to a Redis server"):
        made(runs_are_jobs)
    assert not (home / "online.db").exists()


def test_a_server_is_taken_there(
    runs_are_jobs: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ML_ASSETS_ONLINE", "redis://:hush@127.0.0.1:1/0")
    assert made(runs_are_jobs) == "RedisOnline"


def test_on_a_laptop_a_file_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its training is on a cluster: the steps are processes of this machine."""
    monkeypatch.setenv("ML_ASSETS_LAUNCHER", "kubernetes")
    monkeypatch.setenv("ML_ASSETS_OBJECTS", "s3://bucket/state")
    monkeypatch.setenv("ML_ASSETS_TRAINING_IMAGE", f"a/b@sha256:{'0' * 64}")
    with dg.instance_for_test() as instance:
        assert made(instance) == "SqliteOnline"
