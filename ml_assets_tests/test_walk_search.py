"""A search from spec to release: a winner, its record and its proof; and killed anywhere."""

import json
import random
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ml_assets.automation.search_starts import search_tick
from ml_assets.definitions import build
from ml_assets.records.ledger.chain import read
from ml_assets.records.run_record import RunRecord, contradiction
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.fresh import said_by
from ml_assets_tests.servers.postgres import postgres
from ml_assets_tests.worlds import irises, searched
from ml_assets_tests.worlds.flight_pods import begin
from ml_assets_tests.worlds.processes import below
from ml_assets_tests.worlds.world import World

pytestmark = pytest.mark.timeout(1200)  # the first test waits for a run and a study


def sessions(world: World) -> dict[str, int]:
    """Training session -> attempts that came to a result."""
    folders = world.root.glob("state/objects/sessions/irises-train-*")
    return {f.name: len([*f.glob("attempts/*/result.json")]) for f in folders}


def scored_models(world: World) -> set[str]:
    """The digests of all models that were ever asked about rows."""
    asked = world.root.glob("state/objects/sessions/irises-score-*/attempts/*/request.json")
    return {json.loads(file.read_text())["model"]["digest"] for file in asked}


def study_of(world: World) -> dict[str, Any]:
    return json.loads(world.cli("models", "search", "irises", "--json"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Irises whose own learning rate is poor, released, then searched."""
    found = searched.plant(tmp_path_factory.mktemp("search"), rate=0.0003)
    spec = found.pipelines / "irises" / "defs.yaml"  # whatever its model is worth, it is champion
    spec.write_text(spec.read_text().replace("at_least: 0.8", "at_least: 0.1"))
    spec.write_text(spec.read_text().replace("margin: 0.3}", "margin: -1.0}"))
    found.cli("run", "irises")
    said = begin(found, "run", "irises", "--search").ends()
    assert (
        "make  irises/trained_model: it is trained with the settings of a search's winner: trial"
    ) in said
    assert "(8 of 8)" in said, "six trials, the spec's own setting and another seed"
    assert "ml-assets models search irises --open" in said
    assert "search: The validation loss of trial" in said
    return found


@pytest.mark.daemon
def test_the_model_is_trained_by_the_winner_in_a_session_of_its_own(world: World) -> None:
    study = study_of(world)
    best = next(one for one in study["trials"] if one["number"] == study["winner"])
    shown = world.page("irises", "trained_model")
    assert shown["search"] == f"trial {study['winner']} of {study['name']}"
    assert shown["session"] not in {one["session"] for one in study["trials"]}
    assert shown["validation_loss"] == pytest.approx(best["loss"])


@pytest.mark.daemon
def test_the_holdout_is_asked_about_the_model_and_about_no_trial(world: World) -> None:
    said = world.cli("models", "search", "irises")
    assert "On the holdout the mean log-loss of its model minus the champion's is -" in said
    lines = read(open_pipeline("irises", world.settings).store, "irises")
    models = {line.model for line in lines if line.kind == "registration"}
    assert len(models) == 2, "the spec's own model and the winner's, and no trial's"
    assert scored_models(world) == models


@pytest.mark.daemon
def test_mlflow_shows_the_trials_below_their_study(world: World) -> None:
    from mlflow import MlflowClient

    study, client = study_of(world), MlflowClient(world.settings.tracking_uri)
    home = client.get_experiment_by_name("irises")
    assert home is not None
    runs = {
        run.data.tags["ml_assets.session"]: run for run in client.search_runs([home.experiment_id])
    }
    parent = runs[study["name"]].info.run_id
    assert {"best_validation_loss", "own_validation_loss"} <= runs[
        study["name"]
    ].data.metrics.keys()
    below = [one for one in runs.values() if one.data.tags.get("mlflow.parentRunId") == parent]
    names = [one.info.run_name for one in below if "by seed" in one.info.run_name]
    assert len(names) == len(study["seeds"]) - 1 > 0
    for one in below:
        assert contradiction(run_record_of(client, one.info.run_id)) == ""
    trials = [one for one in study["trials"] if not one["own"]]
    for one in trials:
        run = runs[one["session"]]
        assert run.data.tags["mlflow.parentRunId"] == parent
        assert run.data.tags["ml_assets.trial_end"] == one["end"]
        assert run.data.params["model.width"] == str(one["values"]["model.width"])
        assert client.get_metric_history(run.info.run_id, "validation_loss")
        record = run_record_of(client, run.info.run_id)
        assert record.search is not None and record.search.trial == one["number"]
        assert record.config["model"]["width"] == one["values"]["model.width"]
        assert record.session == one["session"] and contradiction(record) == ""


def run_record_of(client: Any, run: str) -> RunRecord:
    """The run record that is an artifact of an MLflow run."""
    return RunRecord.model_validate_json(
        Path(client.download_artifacts(run, "run.json")).read_text()
    )


@pytest.mark.daemon
def test_the_run_of_a_search_is_told_as_one(world: World) -> None:
    runs = json.loads(world.cli("models", "experiments", "irises", "--json"))["runs"]
    (search,) = [one for one in runs if one["outcome"]["said"] == "searched"]
    assert f"the winner is trial {study_of(world)['winner']}" in search["outcome"]["why"]


@pytest.mark.daemon
def test_the_hours_of_every_trial_are_in_the_account(world: World) -> None:
    study = study_of(world)
    account = json.loads(world.cli("models", "cost", "irises", "--by", "job", "--json"))
    told = json.dumps(account)
    for one in study["trials"]:
        assert one["machine_hours"] > 0
        assert one["session"] in told


@pytest.mark.daemon
def test_a_second_call_does_nothing_and_says_why(world: World) -> None:
    before = sessions(world)
    said = world.cli("run", "irises", "--search")
    assert "skip  irises/hyperparameter_search: study irises-study-" in said
    assert "is its winner" in said
    assert sessions(world) == before
    said = world.cli("run", "irises")
    assert "make" not in said, "without --search the winner stays"


@pytest.mark.daemon
def test_the_model_is_proved_without_the_study(world: World) -> None:
    said = world.cli("release", "prove", "irises")
    assert "differs" not in said


@pytest.mark.daemon
def test_a_trial_is_proved_and_a_changed_program_is_not_taken_for_it(world: World) -> None:
    assert world.cli("release", "prove", "irises", "--study").startswith("equal")
    assert "is not a trial" in world.cli("release", "prove", "irises", "--study", "99", code=1)
    spec = world.pipelines / "irises" / "defs.yaml"
    good = spec.read_text()
    spec.write_text(good.replace("epochs: 30", "epochs: 31"))
    try:
        said = world.cli("release", "prove", "irises", "--study", code=3)
        assert "would be irises-study-" in said
    finally:
        spec.write_text(good)


@pytest.mark.daemon
def test_a_winner_outside_of_the_declared_space_is_not_trained_by(
    world: World, tmp_path: Path
) -> None:
    file = world.pipelines / "irises" / "search.yaml"
    good = file.read_text()
    file.write_text(good.replace("high: 0.1}", "high: 0.0002}"))
    try:
        said = world.cli("run", "irises", "--through", "trained_model")
        assert "make  irises/trained_model" in said
        assert "search" not in world.page("irises", "trained_model")
    finally:
        file.write_text(good)
    world.cli("run", "irises")
    assert "search" in world.page("irises", "trained_model")


@pytest.mark.daemon
def test_a_refused_winner_leaves_the_release_and_the_last_screen_says_what_now(
    world: World,
) -> None:
    spec = world.pipelines / "irises" / "defs.yaml"
    good = spec.read_text()
    tiny = "gates:\n    - {kind: size, name: tiny, at_most_mb: 0.00001}\n"
    spec.write_text(good.replace("gates:\n", tiny, 1))
    try:
        said = world.cli("run", "irises", "--search", code=3)
        assert "production keeps model " in said
        assert "its winner was the best on validation" in said
        assert "ml-assets models search irises --open" in said
        assert "`adopt: true`" in said
    finally:
        spec.write_text(good)
    world.cli("run", "irises")


POPULATION = """\
search:
  method: population
  trials: 4
  rounds: 2
  parallel: 2
  seeds: 0
  metric: validation_accuracy
  parameters:
    training.learning_rate: {kind: log_float, low: 0.0001, high: 0.1}
    model.dropout: {kind: float, low: 0.0, high: 0.3}
"""


@pytest.mark.daemon
def test_a_population_trains_in_rounds_by_the_weights_of_the_round_before(tmp_path: Path) -> None:
    world = searched.plant(tmp_path, POPULATION, rate=0.0003)
    killed = begin(world, "run", "irises", "--search", "--through", "training_set").process
    with killed as running:
        while len([n for n in sessions(world).values() if n]) < 6 and running.poll() is None:
            time.sleep(0.2)
        kill_the_orchestrator(running)
    begin(world, "run", "irises", "--search", "--through", "training_set").ends()
    study = study_of(world)
    assert max(sessions(world).values()) == 1, "none is trained twice"
    parts = {one["number"]: one for one in study["trials"] if not one["own"]}
    assert sorted(parts) == [*range(8)] and len(study["trials"]) == 9
    for number in range(4, 8):
        parent = parts[parts[number]["parent"]]
        assert parent["round"] == 0
        made, asked = (session_file(world, one) for one in (parent, parts[number]))
        model = json.loads((made / "result.json").read_text())["model"]["digest"]
        request = json.loads((asked / "request.json").read_text())
        assert request["init"]["digest"] == model and request["training"]["epochs"] == 15
    assert parts[4]["curve"][0][0] > 0.5, "a second round is the second half of the training"
    said = world.cli("models", "search", "irises")
    assert "The schedule that the best followed" in said or study["winner"] is None
    refused = world.cli("release", "prove", "irises", "--study", "5", code=1)
    assert "is a round of a population" in refused
    again = world.cli("run", "irises", "--search", "--through", "training_set")
    assert "skip  irises/hyperparameter_search" in again


def session_file(world: World, trial: dict[str, Any]) -> Path:
    """The folder of a trial's attempt that came to a result."""
    (result,) = world.root.glob(f"state/objects/sessions/{trial['session']}/attempts/*/result.json")
    return result.parent


TRAINS = "ml_assets.training train"
"""What the command line of a training program has."""

Kill = Callable[[subprocess.Popen[bytes]], None]
"""What happens to a process that searches."""


def kill_the_orchestrator(running: subprocess.Popen[bytes]) -> None:
    running.kill()


def kill_a_trial(running: subprocess.Popen[bytes]) -> None:
    """SIGKILL the first training program below a process."""
    import psutil

    for one in below(running.pid, TRAINS)[:1]:
        with suppress(psutil.Error):  # it ended meanwhile
            one.kill()


def kill_connections(place: str) -> Kill:
    """Ends every connection to a database but its own."""
    import psycopg

    def kill(running: subprocess.Popen[bytes]) -> None:
        with psycopg.connect(place.replace("+psycopg", ""), autocommit=True) as admin:
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where backend_type = 'client backend' and pid <> pg_backend_pid()"
            )

    return kill


def killed_rounds(found: World, rounds: int, seed: int, kills: Sequence[Kill]) -> None:
    """At random moments of its trainings something is killed, in the end the orchestrator; then the
    study is let to its end."""
    draw = random.Random(seed)
    found.cli("run", "irises", "--through", "training_set")
    for _ in range(rounds):
        with begin(found, "run", "irises", "--search").process as running:
            while running.poll() is None and not below(running.pid, TRAINS):
                time.sleep(0.05)
            for kill in (draw.choice(kills), kill_the_orchestrator):
                time.sleep(draw.uniform(0, 4))
                if running.poll() is None:
                    kill(running)
    begin(found, "run", "irises", "--search").ends()
    study = study_of(found)
    over = [one for one in study["trials"] if one["end"] in ("finished", "pruned")]
    assert len(over) == 7
    assert len({one["session"] for one in over}) == 7
    assert max(sessions(found).values()) == 1


@pytest.mark.daemon
@pytest.mark.timeout(3600)
def test_a_study_killed_at_random_twenty_times_is_whole(tmp_path: Path) -> None:
    with postgres() as place:
        found = searched.plant(tmp_path, rate=0.0003, extra={"ML_ASSETS_STUDIES": place})
        kills = (kill_the_orchestrator, kill_a_trial, kill_connections(place))
        killed_rounds(found, 20, 20, kills)


@pytest.mark.daemon
@pytest.mark.timeout(1200)
def test_a_study_in_a_folder_killed_twice_is_whole(tmp_path: Path) -> None:
    found = searched.plant(tmp_path, rate=0.0003)
    killed_rounds(found, 2, 2, (kill_the_orchestrator, kill_a_trial))


@pytest.mark.daemon
def test_a_schedule_asks_for_no_study_that_is_over(world: World) -> None:
    pipeline = open_pipeline("irises", world.settings)
    assert "would be the same" in str(search_tick(pipeline))
    assert pipeline.search is not None
    more = pipeline.search.model_copy(update={"trials": 8})
    asked = search_tick(replace(pipeline, search=more))
    assert isinstance(asked, dg.RunRequest)
    assert asked.tags["trigger"] == "schedule"


def test_a_schedule_is_declared_where_the_search_says_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = searched.plant(tmp_path, searched.SEARCH + "  schedule: {every: month, at: 1 03:00}\n")
    world.enter(monkeypatch)
    found = build(world.settings, only="irises")
    schedule = next(s for s in found.schedules or [] if s.name == "irises__search_schedule")
    assert isinstance(schedule, dg.ScheduleDefinition)
    assert schedule.cron_schedule == "0 3 1 * *"
    assert "no training set" in str(search_tick(open_pipeline("irises", world.settings)))


def test_a_pipeline_without_a_search_is_refused_one(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    said = world.cli("run", "irises", "--search", code=1)
    assert "write search.yaml beside its spec" in said
    assert "there was no search yet" in world.cli("models", "search", "irises")


@pytest.mark.parametrize(("planted", "loads"), [(False, False), (True, True)])
def test_only_a_pipeline_with_a_search_loads_its_code_and_none_loads_optuna(
    tmp_path: Path, planted: bool, loads: bool
) -> None:
    world = World(tmp_path).plant(irises)
    if planted:
        (world.pipelines / "irises" / "search.yaml").write_text(searched.SEARCH)
    code = (
        "import sys, ml_assets.definitions as d; d.build(d.read_settings(), only='irises');"
        " print('optuna' in sys.modules,"
        " 'ml_assets.assets.hyperparameter_search.asset' in sys.modules)"
    )
    said = said_by(code, env=world.environment, cwd=tmp_path)
    assert said.split()[-2:] == ["False", str(loads)]
