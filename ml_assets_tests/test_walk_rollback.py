"""Two releases, back to the first, and a refusal overridden: ledger, records, Dagster and MLflow
agree about what serves, whatever was killed in between.
"""

import json

import dagster as dg
import pytest

from ml_assets.assets.released_model.promote import Refused
from ml_assets.assets.released_model.rollback import Way, append_rollback, way_back
from ml_assets.automation.schedules import refresh_tick
from ml_assets.definitions import build
from ml_assets.records.ledger.audit import problems
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.records.load_release import find_release
from ml_assets.records.tracking.links import report_name
from ml_assets.store.layout import Address, read_record
from ml_assets.store.pipeline_context import Pipeline, open_pipeline
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

SPEC = irises.SPEC.replace("{kind: champion}", "{kind: champion, margin: 10.0}")
RELEASED = dg.AssetKey(["irises", "released_model"])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two models, one after the other in production."""
    found = World(tmp_path_factory.mktemp("rollback")).plant(irises)
    declare(found, SPEC)
    found.cli("run", "irises")
    irises.write_flowers(found.sources, "virginica")
    found.cli("run", "irises")
    return found


@pytest.fixture(autouse=True)
def here(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line in this process: it is loaded once."""
    world.enter(monkeypatch)
    monkeypatch.setenv("DAGSTER_HOME", str(world.settings.dagster_home))


def declare(world: World, spec: str) -> None:
    (world.pipelines / "irises" / "defs.yaml").write_text(spec)


def place(world: World) -> Pipeline:
    return open_pipeline("irises", world.settings)


def models(world: World) -> tuple[str, str]:
    """The first and the second model of the world."""
    moves = [e.model for e in read(place(world).store, "irises") if e.kind == "stage"]
    return moves[0], moves[1]


def serving(world: World) -> dict[str, str]:
    """What each of those that are asked say is in production."""
    from mlflow import MlflowClient

    found = place(world)
    store = found.store
    record = read_record(store, store.resolve(), Address("irises", "released_model"))
    client = MlflowClient(world.settings.tracking_uri)
    version = client.get_model_version_by_alias("irises", "production")
    assert record
    return {
        "ledger": champion(read(store, "irises")) or "",
        "predict": find_release(found).model.digest,
        "record": record.data_version,
        "Dagster": world.data_version("irises", "released_model"),
        "MLflow": version.tags["ml_assets.model"],
    }


def all_say(world: World, model: str) -> bool:
    said = serving(world)
    assert set(said.values()) == {model}, said
    assert problems(read(place(world).store, "irises")) == ()
    return True


def test_a_rollback_is_verified_tried_and_recorded_and_everybody_agrees(world: World) -> None:
    first, second = models(world)
    said = world.cli("release", "rollback", "irises", "--author", "ada", "--reason", "complaints")
    steps = ["the ledger of", "is to be in", "verified", "is now tried", "predicts 16 rows", "told"]
    assert sorted(steps, key=said.find) == steps
    assert f"verified: model {first[:12]}" in said
    assert f"{first[:12]} is back in production in place of {second[:12]}" in said
    assert all_say(world, first)
    assert world.status("irises")["release"]["version"] == first


def test_the_next_run_leaves_out_the_model_that_was_rolled_back_from(world: World) -> None:
    first, second = models(world)
    said = world.cli("run", "irises")
    assert f"skip  irises/released_model: ada rolled back from model {second[:12]}" in said
    assert "make  gates" not in said, "what stays out is not judged again"
    assert all_say(world, first)


def test_released_model_alone_does_not_put_it_back_either(world: World) -> None:
    """A click on the asset: its old decision fits all evidence, but not what a person said."""
    first, second = models(world)
    assert champion(read(place(world).store, "irises")) == first
    with world.instance() as instance:
        job = build(world.settings, only="irises").resolve_implicit_global_asset_job_def()
        result = job.get_subset(asset_selection={RELEASED}).execute_in_process(
            instance=instance, raise_on_error=False
        )
    (failed,) = [e for e in result.all_events if e.is_step_failure]
    assert "ada rolled back from this model" in str(failed.step_failure_data.error)
    assert second[:12] in str(failed.step_failure_data.error)
    assert all_say(world, first)


def test_the_job_of_the_ui_rolls_back_as_the_command_does(world: World) -> None:
    _, second = models(world)
    config = {"to": second[:8], "author": "grace", "reason": "it was the weather"}
    with world.instance() as instance:
        job = build(world.settings, only="irises").resolve_job_def("irises__rollback")
        result = job.execute_in_process(
            instance=instance, run_config={"ops": {"irises__roll_back": {"config": config}}}
        )
    assert result.success
    newest = read(place(world).store, "irises")[-1]
    assert (newest.author, newest.reason, newest.run) == (
        "grace",
        "it was the weather",
        result.run_id,
    )
    assert all_say(world, second)


def test_a_damaged_model_does_not_come_back_and_nothing_moves(world: World) -> None:
    first, second = models(world)
    weights = place(world).objects.path("models", first) / "weights.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    lines = len(read(place(world).store, "irises"))
    try:
        said = world.cli(
            "release", "rollback", "irises", "--to", first, "--author", "a", "--reason", "r", code=1
        )
    finally:
        weights.write_bytes(whole)
    assert "is lost or damaged" in said and "weights.safetensors" in said
    assert len(read(place(world).store, "irises")) == lines
    assert all_say(world, second)


def killed_behind_its_line(world: World, to: str) -> None:
    """What is there when a rollback dies between the ledger and all that follows from it."""
    found = place(world)
    way = way_back(read(found.store, "irises"), found.spec.release, to)
    assert isinstance(way, Way)
    assert not isinstance(
        append_rollback(found.store, "irises", way, found.spec.release, "ada", "killed"), Refused
    )


def test_history_tells_mlflow_what_a_killed_command_did_not(world: World, cli: Cli) -> None:
    first, _ = models(world)
    killed_behind_its_line(world, first)
    assert serving(world)["MLflow"] != first
    said = cli("release", "history", "irises")
    assert "MLflow received the stages of irises" in said.err
    assert "rollback to production" in said.out
    assert serving(world)["MLflow"] == first
    assert "MLflow" not in cli("release", "history", "irises").err, "it knows now"


def test_a_killed_rollback_is_finished_by_the_next_and_not_gone_one_model_further(
    world: World, cli: Cli
) -> None:
    first, second = models(world)
    assert serving(world)["record"] == second
    said = cli(
        "release", "rollback", "irises", "--author", "ada", "--reason", "again", "--json"
    ).out
    assert json.loads(said)["reason"] == "killed"
    assert all_say(world, first)
    said = cli(
        "release", "rollback", "irises", "--author", "ada", "--reason", "no more", code=1
    ).err
    assert "No model was in production before" in said


def test_an_override_releases_the_refused_model_and_shows_red(world: World) -> None:
    first, _ = models(world)
    strict = SPEC.replace("at_least: 0.8", "at_least: 0.99999").replace("width: 32", "width: 31")
    declare(world, strict)
    world.cli("run", "irises", code=3)
    third = read(place(world).store, "irises")[-1].model
    said = world.cli(
        "release", "override", "irises", "--author", "ada", "--reason", "the <b>floor</b>"
    )
    assert f"on model {third[:12]} (accuracy_floor)" in said
    page = place(world).objects.path("reports", "irises", report_name(third)).read_text()
    assert "✗ OVERRIDE: this model may be released although accuracy_floor refused it" in page
    assert "the &lt;b&gt;floor&lt;/b&gt;" in page
    assert "<b>floor" not in page
    assert champion(read(place(world).store, "irises")) == first, "the line moves nothing"
    due = refresh_tick(place(world))
    assert isinstance(due, dg.RunRequest), "what a person answers for is due, and not refused"

    world.cli("run", "irises")
    assert all_say(world, third)
    assert r"accuracy\_floor failed" in str(world.page("irises", "released_model")["OVERRIDE"])
    said = world.cli("status", "irises")
    assert "OVERRIDE by ada" in said
    assert "judged again" not in said
    assert "one champion at every moment" in world.cli("release", "history", "irises", "--check")


def test_a_model_that_was_refused_since_can_come_back_and_serves(world: World, cli: Cli) -> None:
    """It was released by what counted then; a policy of later does not make it unfit."""
    third = champion(read(place(world).store, "irises")) or ""
    world.edit("irises", ("at_least: 0.99999", "at_least: 0.999999"))
    world.cli("run", "irises", code=3)
    assert all_say(world, third), (
        "an override of another decision releases nothing, a release stays"
    )
    said = ["--author", "ada", "--reason", "to and fro"]
    cli("release", "rollback", "irises", *said)
    assert champion(read(place(world).store, "irises")) != third
    told = cli("release", "rollback", "irises", "--to", third[:9], *said).out
    assert f"model {third[:12]} is back in production" in told
    assert all_say(world, third)
