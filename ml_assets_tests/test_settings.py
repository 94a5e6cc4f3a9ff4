"""The environment is read once; a value that cannot be used is named, with its remedy."""

import os
from pathlib import Path

import pytest

from ml_assets.errors import SettingsError
from ml_assets.settings import DEMO_PIPELINES, Cluster, read_cluster, read_settings
from ml_assets.settings.addresses import beside
from ml_assets.settings.cluster import Taint


def test_every_default_is_embedded_and_below_the_home(tmp_path: Path) -> None:
    home = tmp_path / "state"
    settings = read_settings({"ML_ASSETS_HOME": str(home)})
    assert settings.home == home
    assert settings.dagster_home == home / "dagster"
    assert settings.scratch == home / "scratch"
    assert settings.sources == home / "demo"
    assert settings.snapshots == str(home / "snapshots")
    assert settings.objects == str(home / "objects")
    assert settings.launcher == "local"
    assert settings.tracking_uri == f"sqlite:///{home / 'mlflow.db'}"
    assert settings.pipelines == (DEMO_PIPELINES,)


def test_the_home_is_beside_the_reader_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_settings({}).home == tmp_path.resolve() / ".ml_assets"


def test_reading_settings_makes_nothing(tmp_path: Path) -> None:
    read_settings({"ML_ASSETS_HOME": str(tmp_path / "state")})
    assert list(tmp_path.iterdir()) == []


def test_an_empty_value_is_the_default(tmp_path: Path) -> None:
    names = ["SOURCES", "PIPELINES", "SNAPSHOTS", "OBJECTS", "LAUNCHER"]
    empty = {f"ML_ASSETS_{name}": "" for name in names} | {"MLFLOW_TRACKING_URI": ""}
    home = {"ML_ASSETS_HOME": str(tmp_path)}
    assert read_settings({**home, **empty}) == read_settings(home)


def test_each_place_can_be_set_on_its_own(tmp_path: Path) -> None:
    settings = read_settings(
        {
            "ML_ASSETS_HOME": str(tmp_path),
            "ML_ASSETS_SOURCES": str(tmp_path / "outside"),
            "ML_ASSETS_SNAPSHOTS": str(tmp_path / "a"),
            "ML_ASSETS_OBJECTS": str(tmp_path / "b"),
            "MLFLOW_TRACKING_URI": "http://tracking.example",
        }
    )
    assert settings.sources == tmp_path / "outside"
    assert settings.snapshots == str(tmp_path / "a")
    assert settings.objects == str(tmp_path / "b")
    assert settings.tracking_uri == "http://tracking.example"


def test_a_file_where_the_home_should_be_is_named(tmp_path: Path) -> None:
    file = tmp_path / "state"
    file.write_text("")
    with pytest.raises(SettingsError, match="regular file") as caught:
        read_settings({"ML_ASSETS_HOME": str(file)})
    assert str(file) in str(caught.value)
    assert "Move the file away" in str(caught.value)


def test_objects_on_s3_have_a_cache_here_and_take_the_checkpoints_along(tmp_path: Path) -> None:
    home = {"ML_ASSETS_HOME": str(tmp_path)}
    local = read_settings({**home, "ML_ASSETS_OBJECTS": str(tmp_path / "elsewhere")})
    assert (local.cache, local.checkpoints) == (tmp_path / "elsewhere", None)
    there = {**home, "ML_ASSETS_OBJECTS": "s3://bucket/prefix/"}
    found = read_settings(there)
    assert (found.objects, found.cache) == ("s3://bucket/prefix", tmp_path / "objects")
    assert found.checkpoints == "s3://bucket/prefix/sessions/{session}/checkpoints"
    assert read_settings({**there, "ML_ASSETS_CHECKPOINTS": "s3://b/c"}).checkpoints == "s3://b/c"


def test_checkpoints_lie_beside_their_session_in_a_folder_or_on_s3(tmp_path: Path) -> None:
    home = {"ML_ASSETS_HOME": str(tmp_path)}
    assert read_settings(home).checkpoints is None
    folder = read_settings({**home, "ML_ASSETS_CHECKPOINTS": str(tmp_path / "big")})
    assert folder.checkpoints == str(tmp_path / "big")
    bucket = read_settings({**home, "ML_ASSETS_CHECKPOINTS": "s3://bucket/prefix/"})
    assert bucket.checkpoints == "s3://bucket/prefix"


@pytest.mark.parametrize("name", ["ML_ASSETS_OBJECTS", "ML_ASSETS_CHECKPOINTS"])
@pytest.mark.parametrize("value", ["gs://bucket/prefix", "s3:///prefix", "s3://key:hush@bucket/x"])
def test_another_place_is_refused_and_no_secret_told(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name) as caught:
        read_settings({"ML_ASSETS_HOME": str(tmp_path), name: value})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SNAPSHOTS", "s3://bucket/prefix", "ML_ASSETS_SNAPSHOTS has the scheme 's3'"),
        ("LAUNCHER", "slurm", "ML_ASSETS_LAUNCHER is 'slurm'"),
        ("RETENTION", "models=2d,models=3d", "gives models twice"),
    ],
)
def test_a_value_that_this_version_cannot_use_is_refused(
    tmp_path: Path, name: str, value: str, said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        read_settings({"ML_ASSETS_HOME": str(tmp_path), f"ML_ASSETS_{name}": value})


def test_pipeline_folders_are_a_path_list_of_folders_that_exist(tmp_path: Path) -> None:
    rooms = [tmp_path / "one", tmp_path / "two"]
    for room in rooms:
        room.mkdir()
    listed = os.pathsep.join(str(room) for room in rooms)
    home = {"ML_ASSETS_HOME": str(tmp_path)}
    assert read_settings({**home, "ML_ASSETS_PIPELINES": listed}).pipelines == tuple(rooms)
    with pytest.raises(SettingsError, match=r"three, which is not a folder.*run `ml-assets new"):
        read_settings({**home, "ML_ASSETS_PIPELINES": f"{listed}{os.pathsep}{tmp_path / 'three'}"})


def test_a_connection_is_named_and_its_url_never_shown(tmp_path: Path) -> None:
    url = "postgresql://me:secret@warehouse/db"
    settings = read_settings({"ML_ASSETS_HOME": str(tmp_path), "ML_ASSETS_SQL_WAREHOUSE": url})
    assert settings.sql_url("WAREHOUSE") == url
    assert "secret" not in repr(settings)


def test_a_connection_that_is_not_set_is_a_file_beside_the_sources(tmp_path: Path) -> None:
    settings = read_settings({"ML_ASSETS_HOME": str(tmp_path)})
    assert settings.sql_url("WEATHER") == f"sqlite:///{tmp_path / 'demo' / 'weather.db'}"


def test_the_process_environment_is_read_where_none_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path))
    assert read_settings().home == tmp_path.resolve()


def test_the_online_store_is_a_file_or_a_redis_server_and_its_url_is_never_shown(
    tmp_path: Path,
) -> None:
    home = {"ML_ASSETS_HOME": str(tmp_path)}
    assert read_settings(home).online == str(tmp_path / "online.db")
    assert read_settings({**home, "ML_ASSETS_ONLINE": "here.db"}).online.endswith("/here.db")
    url = "redis://:hush-hush@shelf.example:6379/0"
    settings = read_settings({**home, "ML_ASSETS_ONLINE": url})
    assert settings.online == url
    assert "hush-hush" not in repr(settings)
    for wrong in ("memcached://:hush-hush@shelf", "redis://"):
        with pytest.raises(SettingsError, match="ML_ASSETS_ONLINE") as told:
            read_settings({**home, "ML_ASSETS_ONLINE": wrong})
        assert "hush-hush" not in str(told.value)


# --- the cluster ----------------------------------------------------------------------------------

IMAGE = "registry.example:5000/team/training@sha256:" + "a" * 64
POD = {"ML_ASSETS_OBJECTS": "s3://bucket/prefix/", "ML_ASSETS_TRAINING_IMAGE": IMAGE}


def test_a_store_and_an_image_are_all_that_a_cluster_needs() -> None:
    assert read_cluster(POD) == Cluster(objects="s3://bucket/prefix", image=IMAGE)


def test_everything_that_pods_are_given_can_be_set() -> None:
    cluster = read_cluster(
        {
            **POD,
            "ML_ASSETS_NAMESPACE": "team-a",
            "ML_ASSETS_TRAINING_SECRET": "store.keys",
            "ML_ASSETS_PULL_SECRET": "registry",
            "ML_ASSETS_SPOT_SELECTOR": "cloud.example/spot=true, size=big",
            "ML_ASSETS_SPOT_TOLERATION": "cloud.example/spot=true:NoSchedule,gone:NoExecute",
            "AWS_ENDPOINT_URL": "http://store.example:9000/",
            "AWS_REGION": "eu-central-1",
            "ML_ASSETS_CAPACITY": "reserved",
        }
    )
    assert cluster == Cluster(
        objects="s3://bucket/prefix",
        image=IMAGE,
        namespace="team-a",
        secret="store.keys",
        pull_secret="registry",
        spot_selector=(("cloud.example/spot", "true"), ("size", "big")),
        spot_taints=(
            Taint("cloud.example/spot", "true", "NoSchedule"),
            Taint("gone", None, "NoExecute"),
        ),
        bought="reserved",
        s3_endpoint="http://store.example:9000",
        s3_region="eu-central-1",
    )


def test_all_that_is_missing_is_told_at_once() -> None:
    with pytest.raises(SettingsError) as told:
        read_cluster({})
    assert "ML_ASSETS_OBJECTS" in str(told.value)
    assert "ML_ASSETS_TRAINING_IMAGE" in str(told.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ML_ASSETS_OBJECTS", "/data/objects", "would not find it"),
        ("ML_ASSETS_OBJECTS", "gs://bucket", "not on S3"),
        ("ML_ASSETS_OBJECTS", "s3:///prefix", "names no place"),
        ("ML_ASSETS_OBJECTS", "s3://me:hush@bucket/x", "user or password"),
        ("ML_ASSETS_TRAINING_IMAGE", "training:1.2", "by its digest"),
        ("ML_ASSETS_TRAINING_IMAGE", "training", "by its digest"),
        ("ML_ASSETS_TRAINING_IMAGE", "training@sha256:abc", "by its digest"),
        ("ML_ASSETS_TRAINING_IMAGE", f"training:1.2@sha256:{'a' * 64}", "no tag"),
        ("ML_ASSETS_NAMESPACE", "Team_A", "name of a Kubernetes namespace"),
        ("ML_ASSETS_NAMESPACE", "a" * 64, "name of a Kubernetes namespace"),
        ("ML_ASSETS_TRAINING_SECRET", "AKIA/hush+hush=", "not the name of a Secret"),
        ("ML_ASSETS_PULL_SECRET", '{"auths": "hush"}', "not the name of a Secret"),
        ("ML_ASSETS_SPOT_SELECTOR", "spot", "has 'spot'"),
        ("ML_ASSETS_SPOT_SELECTOR", "a=b=c", "has 'a=b=c'"),
        ("ML_ASSETS_SPOT_TOLERATION", "spot=true", "has 'spot=true'"),
        ("ML_ASSETS_SPOT_TOLERATION", "spot=true:Never", "NoSchedule"),
        ("AWS_ENDPOINT_URL", "http://me:hush@store.example", "user or password"),
        ("AWS_ENDPOINT_URL", "ftp://me:hush@store.example", "user or password"),
        ("AWS_ENDPOINT_URL", "store.example", "expected an address"),
    ],
)
def test_a_wrong_value_for_the_cluster_is_named_and_no_secret_told(
    name: str, value: str, said: str
) -> None:
    with pytest.raises(SettingsError) as told:
        read_cluster({**POD, name: value})
    assert name in str(told.value)
    assert said in str(told.value)
    assert "hush" not in str(told.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "ML_ASSETS_OBJECTS"),
        ({"ML_ASSETS_TRAINING_IMAGE": IMAGE, "ML_ASSETS_OBJECTS": "/data"}, "ML_ASSETS_OBJECTS"),
        ({**POD, "ML_ASSETS_TRAINING_IMAGE": "training:1.2"}, "ML_ASSETS_TRAINING_IMAGE"),
        ({**POD, "ML_ASSETS_CHECKPOINTS": "/fast"}, "ML_ASSETS_CHECKPOINTS is '/fast', a folder"),
    ],
)
def test_the_kubernetes_launcher_is_refused_without_what_its_pods_need(
    tmp_path: Path, more: dict[str, str], said: str
) -> None:
    home = {"ML_ASSETS_HOME": str(tmp_path), "ML_ASSETS_LAUNCHER": "kubernetes"}
    with pytest.raises(SettingsError, match=said):
        read_settings({**home, **more})


def test_the_servers_beside_a_port_take_the_next_free_ones() -> None:
    def free(first: int) -> int:
        return first + (first == 4001)

    moved = beside(4000, free, {})
    assert [url.rpartition(":")[2] for url in moved.values()] == ["4000", "4002", "4003"]
    there = read_settings(moved)
    assert (there.ui_url, there.reports_url, there.mlflow_url) == tuple(moved.values())


@pytest.mark.parametrize(
    ("env", "moved"),
    [
        ({"ML_ASSETS_REPORTS_URL": "http://127.0.0.1:9"}, {"UI": 4000, "MLFLOW": 4001}),
        ({"MLFLOW_TRACKING_URI": "https://mlflow.org"}, {"UI": 4000, "REPORTS": 4001}),
        ({"ML_ASSETS_UI_URL": "https://d.org"}, {"REPORTS": 4001, "MLFLOW": 4002}),
    ],
)
def test_an_address_that_is_set_is_not_moved(env: dict[str, str], moved: dict[str, int]) -> None:
    found = beside(4000, lambda first: first, env)
    assert found == {
        f"ML_ASSETS_{name}_URL": f"http://127.0.0.1:{port}" for name, port in moved.items()
    }


def test_a_host_of_the_ui_is_a_name() -> None:
    assert read_settings({"ML_ASSETS_UI_HOSTS": "a.example, b"}).ui_hosts == (
        "127.0.0.1",
        "a.example",
        "b",
    )
    for wrong in ("*", "https://a.example", "a.example:3000"):
        with pytest.raises(SettingsError, match="ML_ASSETS_UI_HOSTS"):
            read_settings({"ML_ASSETS_UI_HOSTS": wrong})


def test_the_digest_is_of_every_place_and_of_no_secret(tmp_path: Path) -> None:
    def digest(**changed: str) -> str:
        return read_settings({"ML_ASSETS_HOME": str(tmp_path), **changed}).digest

    other = {
        "ML_ASSETS_SOURCES": str(tmp_path / "elsewhere"),
        "ML_ASSETS_PIPELINES": str(tmp_path),
        "ML_ASSETS_SNAPSHOTS": "lakefs://mine",
        "ML_ASSETS_OBJECTS": "s3://mine",
        "ML_ASSETS_CHECKPOINTS": "s3://mine",
        "ML_ASSETS_ONLINE": "redis://mine:6379/0",
        "ML_ASSETS_SQL_WAREHOUSE": "postgresql://mine/db",
        "MLFLOW_TRACKING_URI": "https://mine",
        "AWS_ENDPOINT_URL": "https://mine",
        "AWS_REGION": "mine",
        "LAKEFS_ENDPOINT": "https://mine",
    }
    found = {digest(**{name: value}) for name, value in other.items()}
    assert len(found | {digest()}) == 1 + len(other)
    assert digest(ML_ASSETS_SIGNING_KEY="k", ML_ASSETS_ALERTS="https://a:b@c") == digest()
    for name in ("ML_ASSETS_SQL_WAREHOUSE", "MLFLOW_TRACKING_URI"):
        secret = other[name].replace("//", "//ann:secret@") + "?password=secret"
        assert digest(**{name: secret}) == digest(**{name: other[name]})
    elsewhere = f"{other['ML_ASSETS_SQL_WAREHOUSE']}?host=evil"
    assert digest(ML_ASSETS_SQL_WAREHOUSE=elsewhere) not in found
