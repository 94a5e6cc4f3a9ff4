"""Models and their stages in MLflow follow the ledger, and are repaired."""

from dataclasses import replace

from ml_assets.assets.released_model.promote import AlreadyReleased, release
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import stages
from ml_assets.records.tracking.mlflow import SESSION_TAG, URI_TAG, Logged, Unavailable
from ml_assets.records.tracking.projection import (
    behind,
    project_stages,
    repair_projection,
    shown_otherwise,
)
from ml_assets.records.tracking.registered_model import LEDGER_TAG, MODEL_TAG, STAGE_TAG
from ml_assets.settings import read_settings
from ml_assets.spec.gates import ReleaseSpec
from ml_assets.store.open import open_snapshots
from ml_assets_tests.records.conftest import PIPELINE, A, B, evidence, refused, released
from ml_assets_tests.records.tracking.mlflow.conftest import LEDGER, SESSION


def test_a_model_has_one_version_that_points_to_it(tracking, client):
    run = tracking.open_run(PIPELINE, SESSION, {}, {})
    for uri in ("/objects/old", "/objects/new"):
        assert tracking.link_model(PIPELINE, A, uri, SESSION, run) == Logged()
    (version,) = client.search_model_versions(f"name = '{PIPELINE}'")
    assert version.tags == {MODEL_TAG: A, SESSION_TAG: SESSION, URI_TAG: "/objects/new"}
    assert version.run_id == run


def test_a_model_whose_run_is_not_known_finds_it_by_the_session(tracking, client):
    run = tracking.open_run(PIPELINE, SESSION, {}, {})
    assert tracking.link_model(PIPELINE, A, "/objects/a", SESSION, None) == Logged()
    (version,) = client.search_model_versions(f"name = '{PIPELINE}'")
    assert version.run_id == run


def staged(client):
    found = client.search_model_versions(f"name = '{PIPELINE}'")
    return {one.tags[MODEL_TAG]: one.tags[STAGE_TAG] for one in found if STAGE_TAG in one.tags}


def test_aliases_follow_the_stages_and_are_repaired(tracking, client):
    for model in (A, B):
        tracking.link_model(PIPELINE, model, f"/objects/{model}", SESSION, None)
    assert tracking.set_stage_aliases(PIPELINE, {"staging": B, "production": A}, LEDGER) == Logged()
    assert aliased(client) == {"staging": B, "production": A}
    assert staged(client) == {A: "production", B: "staging"}

    client.set_registered_model_alias(PIPELINE, "production", "2")
    client.set_registered_model_alias(PIPELINE, "canary", "2")
    client.set_registered_model_alias(PIPELINE, "favourite", "2")
    assert tracking.set_stage_aliases(PIPELINE, {"production": A}, LEDGER) == Logged()
    assert aliased(client) == {"production": A, "favourite": B}
    assert staged(client) == {A: "production", B: "archived"}


def test_a_model_that_left_its_stage_is_archived_though_the_first_call_broke_off(
    tracking, client, monkeypatch
):
    for model in (A, B):
        tracking.link_model(PIPELINE, model, f"/objects/{model}", SESSION, None)
    tracking.set_stage_aliases(PIPELINE, {"production": A}, LEDGER)

    def breaks_off(*args, **kwargs):
        raise ConnectionResetError("connection reset by peer")

    monkeypatch.setattr(type(client), "set_model_version_tag", breaks_off)
    assert isinstance(tracking.set_stage_aliases(PIPELINE, {"production": B}, LEDGER), Unavailable)
    monkeypatch.undo()
    assert tracking.set_stage_aliases(PIPELINE, {"production": B}, LEDGER) == Logged()
    assert staged(client) == {A: "archived", B: "production"}


def test_a_stage_whose_model_has_no_version_points_nowhere_and_says_so(tracking, client):
    tracking.link_model(PIPELINE, A, "/objects/a", SESSION, None)
    tracking.set_stage_aliases(PIPELINE, {"production": A}, LEDGER)
    outcome = tracking.set_stage_aliases(PIPELINE, {"production": B}, LEDGER)
    assert isinstance(outcome, Unavailable)
    assert "production (model bbbbbbbbbbbb)" in outcome.reason
    assert aliased(client) == {}


def test_a_release_killed_before_mlflow_is_repaired_by_running_it_again(
    store, decide, tracking, client
):
    decide(A)
    ask = ReleaseSpec()
    release(store, PIPELINE, evidence(A), ask, "me", "run-1")  # killed here: MLflow knows nothing

    again = release(store, PIPELINE, evidence(A), ask, "me", "run-2")
    tracking.link_model(PIPELINE, A, "/objects/a", SESSION, None)
    outcome = tracking.set_stage_aliases(PIPELINE, lambda: stages(read(store, PIPELINE)), LEDGER)
    assert isinstance(again, AlreadyReleased)
    assert outcome == Logged()
    assert aliased(client) == {"production": A}


def test_another_home_does_not_move_the_aliases_of_the_first(store, tracking, client, tmp_path):
    theirs = open_snapshots(str(tmp_path / "theirs"))
    laptop = replace(tracking, home=tmp_path / "laptop")
    for model in (A, B):
        tracking.link_model(PIPELINE, model, f"/objects/{model}", SESSION, None)
    released(store, A)
    released(theirs, B)
    assert project_stages(store, tracking, PIPELINE) == Logged()

    outcome = project_stages(theirs, laptop, PIPELINE)
    assert aliased(client) == {"production": A} and staged(client) == {A: "production"}
    said = behind(outcome)
    assert str(tracking.home) in said and "MLFLOW_TRACKING_URI" in said
    assert shown_otherwise(theirs, laptop, PIPELINE) == said
    assert project_stages(store, replace(tracking, home=tmp_path / "moved"), PIPELINE) == Logged()
    assert shown_otherwise(store, tracking, PIPELINE) == ""

    client.delete_registered_model_tag(PIPELINE, LEDGER_TAG)  # as the sentence says
    assert project_stages(theirs, laptop, PIPELINE) == Logged()
    assert aliased(client) == {"production": B}


def test_a_home_without_a_ledger_line_leaves_the_aliases(store, tracking, client, tmp_path):
    tracking.link_model(PIPELINE, A, "/objects/a", SESSION, None)
    released(store, A)
    project_stages(store, tracking, PIPELINE)
    empty = open_snapshots(str(tmp_path / "empty"))
    assert project_stages(empty, replace(tracking, home=tmp_path / "b"), PIPELINE) == Logged()
    assert aliased(client) == {"production": A}


def test_an_alias_of_a_pipeline_that_released_nothing_is_told_and_taken_off(
    store, tracking, client
):
    refused(store, A)
    named = {"ML_ASSETS_HOME": str(tracking.home), "MLFLOW_TRACKING_URI": tracking.uri}
    settings = read_settings(named)
    tracking.link_model(PIPELINE, A, "/objects/a", SESSION, None)
    assert shown_otherwise(store, tracking, PIPELINE) == ""
    assert repair_projection(store, settings, PIPELINE) == ""
    client.set_registered_model_alias(PIPELINE, "production", "1")
    said = shown_otherwise(store, tracking, PIPELINE)
    assert "MLflow shows model aaaaaaaaaaaa in production; the ledger has no model there" in said
    assert "MLflow received the stages" in repair_projection(store, settings, PIPELINE)
    assert aliased(client) == {}
    assert repair_projection(store, settings, PIPELINE) == ""


def aliased(client) -> dict[str, str]:
    versions = {v.version: v.tags[MODEL_TAG] for v in client.search_model_versions()}
    aliases = client.get_registered_model(PIPELINE).aliases
    return {name: versions[int(version)] for name, version in aliases.items()}
