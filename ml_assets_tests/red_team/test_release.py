"""Every way to a release of a model whose gate failed: each is refused, with the reason."""

import json
import sqlite3
import subprocess
import sys

import dagster as dg
import pytest

from ml_assets.actions.verify import verify_pipelines
from ml_assets.settings import read_settings
from ml_assets.store.layout import Address
from ml_assets_tests.red_team.conftest import NAME, Scene
from ml_assets_tests.red_team.refused_release import require_refused


def test_the_evaluation_and_the_release_without_any_check(refused: Scene) -> None:
    require_refused(refused, refused.materialize("evaluation_report", "released_model"))


def test_an_automation_condition_that_asks_for_the_release(refused: Scene) -> None:
    key = refused.key("released_model")
    missing = dg.AutomationCondition.missing()
    defs = refused.definitions().map_asset_specs(
        func=lambda spec: (
            spec.replace_attributes(automation_condition=missing | ~missing)
            if spec.key == key
            else spec
        )
    )
    with refused.world.instance() as instance:
        asked = dg.evaluate_automation_conditions(defs, instance)
        assert asked.get_num_requested(key) == 1
    require_refused(refused, refused.materialize("released_model"))


def test_a_sensor_that_asks_for_the_release(refused: Scene) -> None:
    job = dg.define_asset_job(
        "mine", selection=dg.AssetSelection.assets(refused.key("released_model"))
    )

    @dg.sensor(job=job)
    def mine(_context: dg.SensorEvaluationContext) -> dg.RunRequest:
        return dg.RunRequest(tags={"ml_assets/decision": "passed"})

    defs = dg.Definitions.merge(refused.definitions(), dg.Definitions(jobs=[job], sensors=[mine]))
    with refused.world.instance() as instance:
        repository = defs.get_repository_def()
        with dg.build_sensor_context(instance, repository_def=repository) as context:
            [request] = mine.evaluate_tick(context).run_requests or []
        done = defs.resolve_job_def("mine").execute_in_process(
            instance=instance, tags=dict(request.tags), raise_on_error=False
        )
    errors = [str(e.step_failure_data.error) for e in done.all_events if e.is_step_failure]
    require_refused(refused, "\n".join(errors))


def test_a_model_from_rows_that_were_read_elsewhere_is_not_released(
    passed: Scene, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever led another process there: the deciding one holds each source to its settings."""
    monkeypatch.setenv("ML_ASSETS_SOURCES", str(tmp_path / "elsewhere"))
    said = passed.materialize("released_model")
    assert "raw_snapshot/raw_flowers was read from" in said
    assert f"the spec and the settings name {tmp_path / 'elsewhere'}" in said
    assert passed.in_production is None


def test_verify_says_which_sources_a_release_was_read_from(
    released: Scene, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [whole] = verify_pipelines(released.world.settings, NAME, None)
    [sources] = [check for check in whole.checks if check.name == "sources"]
    assert (sources.outcome, str(released.world.sources) in sources.reason) == ("ok", True)
    here = released.world.settings.digest
    assert f"trained under settings {here[:12]}, those of here" in sources.reason
    raw = released.store.read_bytes(
        released.store.resolve(), Address(NAME, "raw_snapshot", "flowers").record
    )
    assert json.loads(raw)["attributes"]["settings"] == here
    monkeypatch.setenv("ML_ASSETS_OBJECTS", str(tmp_path / "objects"))
    assert read_settings().digest != here
    monkeypatch.delenv("ML_ASSETS_OBJECTS")
    monkeypatch.setenv("ML_ASSETS_SOURCES", str(tmp_path / "elsewhere"))
    [moved] = verify_pipelines(read_settings(), NAME, None)
    assert not moved.holds
    [refused] = [check.reason for check in moved.checks if check.outcome == "refused"]
    assert "raw_snapshot/raw_flowers was read from" in refused


def test_verify_says_which_gates_of_now_a_release_was_not_held_to(released: Scene) -> None:
    def policy() -> tuple[str, str]:
        [whole] = verify_pipelines(released.world.settings, NAME, None)
        [found] = [check for check in whole.checks if check.name == "policy"]
        return found.outcome, found.reason

    assert policy() == ("ok", "decided by the gates of the present spec")
    spec = released.world.pipelines / NAME / "defs.yaml"
    added = (
        "    - {kind: bound, name: later, metric: log_loss, at_most: 0.5}\n    - {kind: champion}"
    )
    spec.write_text(spec.read_text().replace("    - {kind: champion}", added))
    assert policy() == ("note", "decided by other gates than the spec has now, without later")


def test_a_check_result_that_says_passed_and_the_true_ones_deleted(refused: Scene) -> None:
    with refused.world.instance() as instance:
        for check in ("accuracy_floor", "beats_constant", "too_good", "champion"):
            instance.report_runless_asset_event(
                dg.AssetCheckEvaluation(
                    asset_key=refused.key("evaluation_report"), check_name=check, passed=True
                )
            )
        key = refused.key("evaluation_report")
        instance.report_runless_asset_event(
            dg.AssetMaterialization(
                asset_key=key, metadata={"auc": 1.0}, tags={"decision": "passed"}
            )
        )
        for run in instance.get_runs():
            instance.add_run_tags(run.run_id, {"ml_assets/decision": "passed"})
    for database in (refused.state / "dagster").rglob("*.db"):
        connection = sqlite3.connect(database)
        with connection:
            tables = {row[0] for row in connection.execute("select name from sqlite_master")}
            if "asset_check_executions" in tables:
                connection.execute(
                    "delete from asset_check_executions where execution_status = 'FAILED'"
                )
        connection.close()
    require_refused(refused, refused.materialize("released_model"))


ALIAS = """
import sys
from mlflow import MlflowClient

server, name, model, uri = sys.argv[1:]
client = MlflowClient(server)
tags = {"ml_assets.model": model, "ml_assets.uri": uri, "decision": "passed"}
version = client.create_model_version(name, uri, tags=tags)
client.set_registered_model_alias(name, "production", version.version)
assert client.get_model_version_by_alias(name, "production").tags["ml_assets.uri"] == uri
"""
"""In a process of its own: MLflow keeps a database open that the next attack's has replaced."""


def move_alias(scene: Scene) -> None:
    uri = str(scene.objects.path("models", scene.candidate))
    told = [scene.world.settings.tracking_uri, NAME, scene.candidate, uri]
    command = [sys.executable, "-c", ALIAS, *told]
    subprocess.run(command, env=scene.world.environment, check=True)


def test_an_mlflow_alias_is_not_asked(refused: Scene) -> None:
    move_alias(refused)
    require_refused(refused, refused.materialize("released_model"))


@pytest.mark.daemon
def test_an_mlflow_alias_that_was_moved_is_told_and_put_right(refused: Scene) -> None:
    """The ledger decides; MLflow is a projection of it."""
    world, there = refused.world, refused.in_production
    move_alias(refused)
    assert there is not None
    wrong = (
        f"MLflow shows model {refused.candidate[:12]} in production; the ledger has model"
        f" {there[:12]} there"
    )
    assert wrong in world.streams("status", NAME).stdout
    assert f"note     mlflow: {wrong}" in world.streams("release", "verify", NAME).stdout
    assert "MLflow received the stages" in world.streams("release", "history", NAME).stderr
    assert "mlflow: its aliases lead to" in world.streams("release", "verify", NAME).stdout
    assert "MLflow shows" not in world.streams("status", NAME).stdout


def test_an_edited_report_is_not_read(refused: Scene) -> None:
    for page in (refused.objects.root / "reports").rglob("*.html"):
        page.write_text(page.read_text().replace("fail", "pass").replace("refused", "passed"))
    require_refused(refused, refused.materialize("released_model"))
