"""Through a real Dagster: a run is launched once, is released by its gates, and is rolled back."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest
from safetensors.numpy import load_file, save_file

from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.records.load_release import find_release
from ml_assets.spec.base import canonical_json
from ml_assets.store.objects import describe
from ml_assets.store.open import shared_snapshots
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.extras.api.calling import Api, api_of
from ml_assets_tests.extras.api.test_stages import in_mlflow
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.ui import serving
from ml_assets_tests.worlds.world import World

pytestmark = pytest.mark.timeout(900)
V1 = "/api/v1"


def ended(api: Api, run: str) -> str:
    """The status of a run when it is over."""
    end = time.monotonic() + 400
    while True:
        status, found = api.ask(f"{V1}/pipelines/runs/{run}")
        assert status == 200, found
        if found["status"] in ("success", "failure", "canceled"):
            return found["status"]
        assert time.monotonic() < end, found
        time.sleep(0.5)


def test_a_run_is_launched_once_released_by_its_gates_and_taken_back(tmp_path: Path) -> None:
    handover = tmp_path / "handover"
    world = World(tmp_path, {"ML_ASSETS_REGISTER_FROM": str(handover)}).plant(irises)
    lax = irises.SPEC.replace("{kind: champion}", "{kind: champion, margin: 10.0}")
    (world.pipelines / "irises" / "defs.yaml").write_text(lax)
    world.cli("run", "irises")

    def now() -> str | None:
        return champion(read(shared_snapshots(world.settings.snapshots), "irises"))

    first = now()
    with serving(world) as ui, api_of(world, ML_ASSETS_UI_URL=ui) as api:
        body = {
            "pipeline_id": "irises",
            "config": {
                "data_source": "flowers",
                "model_type": "mlp",
                "hyperparams": {"epochs": 25, "learning_rate": 0.01},
                "resources": {"nodes": 1, "gpus_per_node": 0},
            },
        }
        status, said = api.ask(f"{V1}/pipelines/runs", body, Idempotency_Key="monday")
        assert (status, said["status"]) == (202, "queued")
        status, again = api.ask(f"{V1}/pipelines/runs", body, Idempotency_Key="monday")
        assert (status, again["run_id"]) == (200, said["run_id"])
        other = {"pipeline_id": "irises"}
        assert api.ask(f"{V1}/pipelines/runs", other, Idempotency_Key="monday")[0] == 409
        assert ended(api, said["run_id"]) == "success"
        second = now()
        assert second not in (None, first)
        status, run = api.ask(f"{V1}/experiments/irises/runs/{said['run_id']}")
        assert (status, run["trigger"]) == (200, "api")
        assert run["params"]["training"]["epochs"] == 25
        assert run["model_version"] == second

        path = f"{V1}/models/irises/versions/{first}/stage"
        asked = {"stage": "production", "reason": "complaints"}
        status, moved = api.send("PUT", path, asked)
        assert (status, moved["status"]) == (200, "moved"), moved
        assert now() == first
        line = read(shared_snapshots(world.settings.snapshots), "irises")[-1]
        assert (line.because, line.author, line.reason) == ("rollback", "olga", "complaints")
        assert api.send("PUT", path, asked)[1]["status"] == "there already"
        assert in_mlflow(world) == {first: "production", second: "archived"}
        end = time.monotonic() + 60
        while in_sql(world) != first:  # the API keeps the views fresh
            assert time.monotonic() < end, "within a minute"
            time.sleep(1)

        # a model that was made elsewhere: judged once, refused in words, whatever it claims
        asked = {
            "name": "irises",
            "version": "1.0.0",
            "artifact_uri": str(made_elsewhere(world, handover / "irises-1.0.0")),
            "metrics": {"accuracy": 0.999},
            "stage": "production",
        }
        status, said = api.ask(f"{V1}/models/register", asked)
        assert (status, said["status"]) == (202, "being judged"), said
        assert ended(api, said["run_id"]) == "failure"
        assert failed_steps(world, said["run_id"]) == ["irises__released_model"], "it is refused"
        status, again = api.ask(f"{V1}/models/register", asked)
        assert (status, again["status"]) == (200, "registered before")
        assert (again["run_id"], again["version"]) == (said["run_id"], said["version"])
        _, shown = api.ask(f"{V1}/models/irises/versions/{said['version']}")
        assert "it is not known which rows model" in shown["reason"]
        assert {gate["name"]: gate["passed"] for gate in shown["gates"]} == {
            "accuracy_floor": True,
            "beats_constant": True,
            "champion": True,
            "made_elsewhere": False,
        }
        assert shown["made_elsewhere"]["claims"] == {"accuracy": 0.999}
        status, kept = api.send(
            "PUT", f"{V1}/models/irises/versions/{said['version']}/stage", {"stage": "production"}
        )
        assert (status, "made_elsewhere" in kept["error"]) == (409, True)
        assert now() == first


def failed_steps(world: World, run: str) -> list[str | None]:
    """The steps of a run that failed, by their names."""
    with world.instance() as instance:
        logs = instance.all_logs(run, of_type=dg.DagsterEventType.STEP_FAILURE)
    return [entry.step_key for entry in logs]


def in_sql(world: World) -> str | None:
    """The model in production, by the views."""
    file = world.settings.home / "data_model.db"
    if not file.is_file():
        return None
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as views:
        asked = "SELECT version FROM model_versions WHERE stage = 'production'"
        return next((version for (version,) in views.execute(asked)), None)


def made_elsewhere(world: World, folder: Path, pipeline: str = "irises") -> Path:
    """The released weights, a little moved: another model."""
    release = find_release(open_pipeline(pipeline, world.settings))
    folder.mkdir(parents=True)
    named = release.manifest.weights.path
    moved = {n: w * 1.0001 for n, w in load_file(Path(release.model.uri) / named).items()}
    save_file(moved, folder / named)
    manifest = release.manifest.model_copy(update={"weights": describe(folder, [named])[0]})
    (folder / "model.json").write_bytes(canonical_json(manifest))
    return folder
