"""A clean home whose programs are pods: what it shares with them is its own, and goes with it."""

from pathlib import Path

import pytest

from ml_assets.adapters.resources import LauncherResource
from ml_assets.errors import StorageError
from ml_assets.extras.prove.clean_home import CleanHome, clean_home
from ml_assets.launch.kubernetes.launcher import KubernetesLauncher
from ml_assets.settings import Settings, read_settings
from ml_assets.store.open import open_snapshots
from ml_assets_tests.servers.s3 import BUCKET, S3Server
from ml_assets_tests.worlds.opened import pipeline_of

URI = f"s3://{BUCKET}/state"


@pytest.fixture
def settings(bucket: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name, value in {
        "ML_ASSETS_HOME": str(tmp_path / "state"),
        "ML_ASSETS_LAUNCHER": "kubernetes",
        "ML_ASSETS_OBJECTS": URI,
        "ML_ASSETS_TRAINING_IMAGE": "registry.example/training@sha256:" + "5" * 64,
    }.items():
        monkeypatch.setenv(name, value)
    return read_settings()


def publish(home: CleanHome) -> None:
    home.objects.write_bytes(b"<p>page</p>", "reports", "demo", "page.html")


def test_its_pods_have_a_place_of_their_own_that_goes_when_it_is_left(
    bucket: S3Server, settings: Settings
) -> None:
    with clean_home(settings, None) as home:
        place = home.settings.objects
        assert place.startswith(f"{URI}/scratch/prove-")
        assert home.settings.checkpoints == f"{place}/sessions/{{session}}/checkpoints"
        assert isinstance(
            LauncherResource().launcher(pipeline_of(settings=home.settings)), KubernetesLauncher
        )
        publish(home)
        assert [key for key in bucket.everything() if "/scratch/prove-" in key]
    assert bucket.everything() == []


def test_a_home_that_is_kept_keeps_what_lies_there(
    bucket: S3Server, settings: Settings, tmp_path: Path
) -> None:
    with clean_home(settings, tmp_path / "kept") as home:
        publish(home)
    assert [key for key in bucket.everything() if key.endswith("reports/demo/page.html")]


def test_a_state_that_was_collected_is_named_with_what_would_have_kept_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "state"))
    settings = read_settings()
    store = open_snapshots(settings.snapshots)
    states: list[str] = []
    for name in ("a", "b"):
        with store.open(store.resolve(), name) as workspace:
            workspace.put_bytes(name, b"")
            workspace.commit(name, {})
            workspace.publish()
        states.append(store.resolve())
    store.collect_garbage(drop=states[:1])
    said = f"the state {states[0][:12]} of main, .*collected as old history.*history=365d"
    with clean_home(settings, None) as home:
        home.bring_ledger("irises", states[1])
        with pytest.raises(StorageError, match=said):
            home.bring_ledger("irises", states[0])
