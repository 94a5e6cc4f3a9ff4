"""Every way to a release of a model whose gate failed: each is refused, with the reason."""

import hashlib
import io
import json
import sqlite3
import subprocess
import sys

import dagster as dg
import numpy as np
import polars as pl
import pytest

from ml_assets.actions.verify import verify_pipelines
from ml_assets.errors import MlAssetsError, SettingsError, UntrustedState
from ml_assets.records.ledger.certificate import certificate_path
from ml_assets.records.ledger.chain import path_of
from ml_assets.records.load_release import find_release, load_model
from ml_assets.settings import read_settings
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program import Ref
from ml_assets.store import home
from ml_assets.store.embedded.blobs import Blobs
from ml_assets.store.layout import Address
from ml_assets_tests.red_team.conftest import NAME, Scene
from ml_assets_tests.red_team.forging import (
    as_if_passed,
    flip_a_byte,
    forged_commit,
    overwrite_blob,
    point_main_at,
    refs,
    replay_signature,
    sign_as_somebody_else,
)
from ml_assets_tests.worlds.shards import shard_of

REFUSED = "refused the model. too_good: log_loss is"
DECIDED = ["decision", "stage", "decision"]
"""What the ledger says of the two models, beside their registration."""


def require_refused(scene: Scene, said: str, because: str = REFUSED) -> None:
    """The reason is said, no line was added, and nothing loads but the old release."""
    assert because in said, said
    assert [line.kind for line in scene.ledger if line.kind in DECIDED] == DECIDED
    assert scene.in_production == scene.ledger[0].model != scene.candidate
    assert find_release(scene.place).model.digest == scene.in_production
    with pytest.raises(MlAssetsError, match="refused the model"):
        load_model(scene.store, scene.objects, NAME, scene.candidate)


# --- through the orchestrator ---------------------------------------------------------------------


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


def test_an_mlflow_alias_is_not_asked(refused: Scene) -> None:
    uri = str(refused.objects.path("models", refused.candidate))
    told = [refused.world.settings.tracking_uri, NAME, refused.candidate, uri]
    command = [sys.executable, "-c", ALIAS, *told]
    subprocess.run(command, env=refused.world.environment, check=True)
    require_refused(refused, refused.materialize("released_model"))


@pytest.mark.daemon
def test_an_mlflow_alias_that_was_moved_is_told_and_put_right(refused: Scene) -> None:
    """The ledger decides; MLflow is a projection of it."""
    world, there = refused.world, refused.in_production
    uri = str(refused.objects.path("models", refused.candidate))
    told = [world.settings.tracking_uri, NAME, refused.candidate, uri]
    subprocess.run([sys.executable, "-c", ALIAS, *told], env=world.environment, check=True)
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


# --- in the snapshot store ------------------------------------------------------------------------


def stored(scene: Scene, path: str) -> tuple[str, bytes]:
    """Digest and content of a file on ``main``."""
    store = scene.store
    [entry] = [e for e in store.list(store.resolve(), path) if e.path == path]
    return entry.digest, store.read_bytes(store.resolve(), path)


FILES = ["the ledger line", "the certificate", "the report's record", "the model's record"]


def path_in(scene: Scene, what: str) -> str:
    refusal = scene.ledger[-1].seq
    return {
        "the ledger line": path_of(NAME, refusal),
        "the certificate": certificate_path(NAME, refusal),
        "the report's record": Address(NAME, "evaluation_report").record,
        "the model's record": Address(NAME, "trained_model").record,
    }[what]


@pytest.mark.parametrize("what", FILES)
def test_an_edited_file_of_the_store_is_damaged(refused: Scene, what: str) -> None:
    path = path_in(refused, what)
    digest, content = stored(refused, path)
    overwrite_blob(refused.snapshots, digest, content.replace(b"false", b"true "))
    overwrite_blob(refused.snapshots, digest, content + b" ")
    said = refused.materialize("released_model")
    if what == "the certificate":  # a refused model does not get as far as its certificate
        assert REFUSED in said
        [verified] = verify_pipelines(refused.world.settings, NAME, None)
        assert any("is damaged" in check.reason for check in verified.checks)
    else:
        assert f"{path} is damaged" in said


@pytest.mark.parametrize("what", FILES)
def test_a_deleted_file_of_the_store_is_lost(refused: Scene, what: str) -> None:
    path = path_in(refused, what)
    digest, _ = stored(refused, path)
    Blobs(refused.snapshots).path(digest).unlink()
    said = refused.materialize("released_model")
    if what == "the certificate":
        assert REFUSED in said
        [verified] = verify_pipelines(refused.world.settings, NAME, None)
        assert any("is lost" in check.reason for check in verified.checks)
        assert {c.outcome for c in verified.checks if c.name == "certificates"} == {"note"}
    else:
        assert f"{path} is lost" in said


def test_the_history_says_that_what_is_in_production_is_damaged(released: Scene) -> None:
    model = str(released.in_production)
    assert "cannot be used" not in released.world.cli("release", "history", NAME)
    weights = released.objects.path("models", model) / "weights.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(weights.read_bytes()[:-8])
    told = released.world.cli("release", "history", NAME).splitlines()[-2:]
    assert told[0] == f"in production now: {model[:12]}"
    said = f"the released model cannot be used: The model {model[:12]} of {NAME} is lost or damaged"
    assert told[1].startswith(said)
    assert told[1].count("Make it again") == 1


SIGNED = {
    "nobody": "which nobody signed",
    "somebody else": "that key is not trusted here",
    "an older commit": "that key signed something else",
}


LIES = ("a line that says passed", "no third line", "yesterday's certificate", "no certificate")
"""The signature of the state is refused before any of them is read."""


@pytest.mark.parametrize(
    ("lie", "by"),
    [*((lie, "nobody") for lie in LIES), *((LIES[0], by) for by in SIGNED if by != "nobody")],
)
def test_a_forged_state_is_not_read_whoever_signed_it(refused: Scene, lie: str, by: str) -> None:
    store, root, old = refused.store, refused.snapshots, refused.store.resolve()
    line, certificate = path_in(refused, "the ledger line"), path_in(refused, "the certificate")
    passed = next(entry.seq for entry in refused.ledger if entry.kind == "decision")
    yesterday = store.read_bytes(old, certificate_path(NAME, passed))
    changes = {
        "a line that says passed": {line: as_if_passed(store.read_bytes(old, line))},
        "no third line": {line: None},
        "yesterday's certificate": {certificate: yesterday},
        "no certificate": {certificate: None},
    }[lie]
    forged = forged_commit(store, root, changes)
    if by == "somebody else":
        sign_as_somebody_else(root, forged)
    if by == "an older commit":
        replay_signature(root, forged, old)
    point_main_at(root, forged)
    assert SIGNED[by] in refused.materialize("released_model")
    with pytest.raises(UntrustedState):
        find_release(refused.place)
    [verified] = verify_pipelines(refused.world.settings, NAME, None)
    assert not verified.holds


def test_an_edited_format_number_has_nothing_converted_or_signed(refused: Scene) -> None:
    store, root = refused.store, refused.snapshots
    path = path_in(refused, "the ledger line")
    line = store.read_bytes(store.resolve(), path)
    changes = {path: as_if_passed(line), path_in(refused, "the certificate"): None}
    point_main_at(root, forged_commit(store, root, changes))
    (refused.state / "format.json").write_text(json.dumps({"format": 5}))
    assert "start clean: ml-assets ops reset" in refused.world.cli("run", NAME, code=1)
    with pytest.raises(SettingsError, match="start clean: ml-assets ops reset"):
        home.prepare(refused.world.settings)
    with pytest.raises(UntrustedState):
        refused.store.resolve()


def test_signatures_that_were_stripped_do_not_make_an_unsigned_store(refused: Scene) -> None:
    path = path_in(refused, "the ledger line")
    line = as_if_passed(refused.store.read_bytes(refused.store.resolve(), path))
    forged = forged_commit(refused.store, refused.snapshots, {path: line})
    point_main_at(refused.snapshots, forged)
    with refs(refused.snapshots) as database:
        database.execute("delete from signatures")
    assert "which nobody signed" in refused.materialize("released_model")
    assert "nobody signed" in refused.world.cli("release", "verify", NAME, code=3)


def test_a_graft_does_not_lead_history_to_a_forged_commit(refused: Scene) -> None:
    """Grafts are not signed: what they lead to is held to a signature of its own."""
    store, root, head = refused.store, refused.snapshots, refused.store.resolve()
    path = path_in(refused, "the ledger line")
    forged = forged_commit(store, root, {path: as_if_passed(store.read_bytes(head, path))})
    body = json.loads(Blobs(root).read(forged, "forged"))
    body["metadata"] = {"run_key": "mine"}
    forged = Blobs(root).write(canonical_json(body))
    with store.open(head, "other") as workspace:
        workspace.put_bytes("other", b"1")
        workspace.commit("other", {})
        workspace.publish()
    with refs(root) as database:
        database.execute("insert into grafts values (?, ?)", [store.resolve(), forged])
    with store.open(head, "mine") as workspace:
        workspace.put_bytes("mine", b"1")
        workspace.commit("mine", {})
        with pytest.raises(UntrustedState, match="nobody signed"):
            workspace.publish()


def test_the_whole_store_put_back_is_told_by_a_head_that_was_noted_elsewhere(
    refused: Scene,
) -> None:
    """Every former state was signed as well: only a witness outside tells."""
    [before] = verify_pipelines(refused.world.settings, NAME, None)
    head = next(check.reason for check in before.checks if check.name == "head").split()[0]
    last, line = refused.ledger[-1].seq, path_in(refused, "the ledger line")
    for commit in refused.store.log():
        if not refused.store.exists(commit.id, line):
            point_main_at(refused.snapshots, commit.id)
            break
    assert "There is no decision on model" in refused.materialize("released_model")
    [after] = verify_pipelines(refused.world.settings, NAME, head)
    assert [c.reason for c in after.checks if c.outcome == "refused"] == [
        f"The noted head is line {last}, but the ledger ends at line {last - 1}:"
        " the store was put back to an earlier state."
    ]
    same = verify_pipelines(refused.world.settings, NAME, "1:" + "0" * 12)[0]
    assert any("another history" in check.reason for check in same.checks)


# --- the bytes that decisions are made from -------------------------------------------------------


def score_session(scene: Scene) -> str:
    """The newest session that scored the candidate on its holdout."""
    folders = (scene.objects.root / "sessions").glob(f"{NAME}-score-*/attempts/*/request.json")
    asked = [f for f in folders if json.loads(f.read_bytes())["model"]["digest"] == scene.candidate]
    assert asked
    return max(asked, key=lambda file: file.stat().st_mtime).parents[2].name


def test_planted_predictions_are_not_believed(refused: Scene) -> None:
    """A finished session, whole and without a fault, that nobody of ours saw."""
    session = refused.objects.path("sessions", score_session(refused))
    file = session / "predictions.npy"
    true = np.load(file)
    labels = holdout(refused)["species"].to_list()
    species = sorted(set(labels))
    perfect = np.full((len(labels), 3), 1e-9)
    perfect[np.arange(len(labels)), [species.index(one) for one in labels]] = 1 - 2e-9
    planted = true.copy()
    planted[: len(labels)] = perfect
    buffer = io.BytesIO()
    np.save(buffer, planted)
    file.write_bytes(buffer.getvalue())
    result = json.loads((session / "attempts" / "1" / "result.json").read_bytes())
    result["predictions"] |= {
        "size": len(buffer.getvalue()),
        "sha256": hashlib.sha256(buffer.getvalue()).hexdigest(),
    }
    (session / "attempts" / "1" / "result.json").write_bytes(canonical_json(result))
    (session / "attempts" / "9").mkdir()
    (session / "attempts" / "9" / "result.json").write_bytes(canonical_json(result))

    said = refused.materialize("evaluation_report", "released_model", checks=True)

    assert np.array_equal(np.load(file), true), "they were computed anew"
    assert (session / "attempts" / "10" / "result.signature.json").is_file()
    assert refused.in_production != refused.candidate
    assert not refused.ledger[-1].decision.passed, said


def holdout(scene: Scene) -> pl.DataFrame:
    return pl.read_parquet(next(_holdouts(scene)))


def _holdouts(scene: Scene):
    record = scene.store.read_bytes(scene.store.resolve(), Address(NAME, "training_set").record)
    digest = json.loads(record)["data_version"]
    data = Ref(uri=str(scene.objects.path("shards", NAME, digest)), digest=digest)
    yield shard_of(data, "holdout") / "rows.parquet"


def test_a_holdout_whose_labels_were_changed_is_not_judged_on(refused: Scene) -> None:
    file = next(_holdouts(refused))
    rows = pl.read_parquet(file)
    rows.with_columns(pl.lit("setosa").alias("species")).write_parquet(file)
    said = refused.materialize("evaluation_report", "released_model", checks=True)
    require_refused(refused, said, f"{file} is damaged")


def test_a_champion_that_was_changed_is_not_compared_with(refused: Scene) -> None:
    """A weaker champion would let a weaker model win."""
    folder = refused.objects.path("models", str(refused.in_production))
    flip_a_byte(folder / "weights.safetensors")
    said = refused.materialize("evaluation_report", "released_model", checks=True)
    assert "is lost or damaged" in said
    assert refused.in_production != refused.candidate


# --- between the gates, the release and the use ---------------------------------------------------


@pytest.mark.parametrize("name", ["weights.safetensors", "model.json"])
def test_a_byte_swapped_between_gate_and_release(passed: Scene, name: str) -> None:
    flip_a_byte(passed.objects.path("models", passed.candidate) / name)
    said = passed.materialize("released_model")
    assert f"The model {passed.candidate[:12]} of irises is lost or damaged" in said
    assert passed.in_production is None
    assert [line.kind for line in passed.ledger if line.kind in DECIDED] == ["decision"]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("at_least: 0.8", "at_least: 0.99999"), "irises: gates or release changed in"),
        (("bootstrap_samples: 200", "bootstrap_samples: 2000"), "irises: evaluation changed in"),
        (("holdout: 0.3", "holdout: 0.25"), "irises: split changed in"),
        (("at_least: 0.8", "at_least: high"), "irises: 1 mistake in"),
    ],
)
def test_gates_edited_between_gate_and_release(
    passed: Scene, edit: tuple[str, str], said: str
) -> None:
    begun, spec = passed.definitions(), passed.world.pipelines / NAME / "defs.yaml"
    assert edit[0] in spec.read_text()
    spec.write_text(spec.read_text().replace(*edit))
    assert said in passed.materialize("released_model", begun=begun)
    assert passed.in_production is None
    assert [line.kind for line in passed.ledger if line.kind in DECIDED] == ["decision"]


def test_an_edit_of_no_gate_between_gate_and_release_stops_nothing(passed: Scene) -> None:
    """The suite above would be worth nothing if what passed and is whole were not released."""
    begun, spec = passed.definitions(), passed.world.pipelines / NAME / "defs.yaml"
    spec.write_text(spec.read_text().replace("epochs: 30", "epochs: 31"))
    assert passed.materialize("released_model", begun=begun) == ""
    assert passed.in_production == passed.candidate


def test_a_byte_swapped_between_release_and_load(released: Scene) -> None:
    flip_a_byte(released.objects.path("models", released.candidate) / "weights.safetensors")
    for command in (["predict", NAME, "--row", "{}"], ["release", "export", NAME, "--to", "out"]):
        assert "is lost or damaged" in released.world.cli(*command, code=1)
    assert not (released.world.root / "out").exists()
    assert "refused  production" in released.world.cli("release", "verify", NAME, code=3)
