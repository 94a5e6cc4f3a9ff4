"""MLflow: one run a session, what is said twice is there once, a dead server is an outcome."""

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ml_assets.assets.released_model.promote import AlreadyReleased, release
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import stages
from ml_assets.records.tracking.mlflow import (
    SESSION_TAG,
    URI_TAG,
    Logged,
    Tracking,
    Unavailable,
)
from ml_assets.records.tracking.mlflow_server import Server
from ml_assets.records.tracking.projection import behind, project_stages, shown_otherwise
from ml_assets.records.tracking.registered_model import LEDGER_TAG, MODEL_TAG, STAGE_TAG
from ml_assets.spec.gates import ReleaseSpec
from ml_assets.store.open import open_snapshots
from ml_assets_tests.records.conftest import PIPELINE, A, B, evidence, released

SESSION = "5e" * 32
LEDGER = "1e" * 32
OPEN = """
import sys
from pathlib import Path
from ml_assets.records.tracking.mlflow import Tracking
home = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(Tracking(f"sqlite:///{home}/mlflow.db", home).open_run("delays", sys.argv[2], {}, {}))
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A database made once: MLflow takes seconds for it."""
    home = tmp_path_factory.mktemp("filled")
    assert Tracking(f"sqlite:///{home}/mlflow.db", home).ensure_database() == Logged()
    return home / "mlflow.db"


@pytest.fixture
def home(tmp_path, filled):
    folder = tmp_path / "home"
    folder.mkdir()
    shutil.copy(filled, folder)
    return folder


@pytest.fixture
def tracking(home):
    return Tracking(f"sqlite:///{home}/mlflow.db", home)


@pytest.fixture
def client(tracking):
    return Server(tracking.uri, tracking.home).client()


@pytest.fixture
def dead(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return Tracking(f"http://somebody:hunter2@127.0.0.1:{port}", tmp_path)


def history(client, run, name):
    return [(m.step, m.value) for m in client.get_metric_history(run, name)]


# --- the database ---------------------------------------------------------------------------------


@pytest.mark.daemon
def test_two_processes_that_open_a_fresh_database_both_succeed_with_one_run(tmp_path):
    command = [sys.executable, "-c", OPEN, str(tmp_path), SESSION]
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, **pipe) for _ in range(2)]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    told = [process.communicate("go\n", timeout=120)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert len(told[0]) == 32, told
    assert told[0] == told[1]
    assert not list(tmp_path.glob(".mlflow.db*"))


@pytest.mark.daemon
def test_a_process_killed_while_it_makes_the_database_leaves_none(tmp_path):
    command = [sys.executable, "-c", OPEN, str(tmp_path), SESSION]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdin.write("go\n")
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while not tables(tmp_path / ".mlflow.db.new") and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / ".mlflow.db.new").exists()
    assert not (tmp_path / "mlflow.db").exists()

    tracking = Tracking(f"sqlite:///{tmp_path}/mlflow.db", tmp_path)
    assert tracking.ensure_database() == Logged()
    assert not list(tmp_path.glob(".mlflow.db*"))


def tables(file: Path) -> int:
    if not file.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=0) as database:
            return len(database.execute("select name from sqlite_master").fetchall())
    except sqlite3.OperationalError:
        return 0
    finally:
        if "database" in locals():
            database.close()


# --- runs -----------------------------------------------------------------------------------------


def test_a_session_has_one_run_however_often_it_is_opened(tracking, client):
    first = tracking.open_run("delays", SESSION, {"a": "1"}, {"width": "64"})
    again = tracking.open_run("delays", SESSION, {"a": "2"}, {"width": "64", "depth": "3"})
    other = tracking.open_run("delays", "07" * 32, {}, {})
    run = client.get_run(first)
    assert first == again != other
    assert run.data.tags[SESSION_TAG] == SESSION
    assert run.data.tags["a"] == "2"
    assert run.data.params == {"width": "64", "depth": "3"}


def test_threads_that_open_a_session_at_once_get_one_run(tracking):
    with ThreadPoolExecutor(4) as pool:
        runs = set(pool.map(lambda _: tracking.open_run("delays", SESSION, {}, {}), range(4)))
    assert len(runs) == 1


def test_long_values_are_cut_and_many_are_taken(tracking, client):
    tags = {f"t{n}": "x" for n in range(150)} | {"long": "y" * 9000}
    params = {f"p{n}": "x" for n in range(150)} | {"long": "y" * 9000}
    run = client.get_run(tracking.open_run("delays", SESSION, tags, params))
    assert len(run.data.params) == 151
    assert run.data.params["long"].endswith("y...")
    assert run.data.tags["t149"] == "x"


def test_a_parameter_that_differs_keeps_its_first_value(tracking, client):
    tracking.open_run("delays", SESSION, {}, {"width": "64"})
    run = tracking.open_run("delays", SESSION, {}, {"width": "65"})
    assert client.get_run(run).data.params == {"width": "64"}


def test_a_failed_run_runs_again_and_a_finished_one_stays_finished(tracking, client):
    run = tracking.open_run("delays", SESSION, {}, {})
    seen = [client.get_run(run).info.status]
    for status in ("FAILED", "FINISHED"):
        assert tracking.close(run, status) == Logged()
        seen.append(client.get_run(run).info.status)
        tracking.open_run("delays", SESSION, {}, {})
        seen.append(client.get_run(run).info.status)
    assert seen == ["RUNNING", "FAILED", "RUNNING", "FINISHED", "FINISHED"]


def test_a_run_that_finished_is_no_failed_one_because_an_older_failure_is_told_late(
    tracking, client
):
    run = tracking.open_run("delays", SESSION, {}, {})
    tracking.close(run, "FINISHED")
    assert tracking.close(run, "FAILED") == Logged()
    assert client.get_run(run).info.status == "FINISHED"


def test_closing_twice_keeps_the_first_end(tracking, client):
    run = tracking.open_run("delays", SESSION, {}, {})
    tracking.close(run, "FINISHED")
    ended = client.get_run(run).info.end_time
    tracking.close(run, "FINISHED")
    assert client.get_run(run).info.end_time == ended


def test_an_experiment_deleted_by_hand_comes_back(tracking, client):
    run = tracking.open_run("delays", SESSION, {}, {})
    client.delete_experiment(client.get_run(run).info.experiment_id)
    assert isinstance(tracking.open_run("delays", "07" * 32, {}, {}), str)


# --- metrics --------------------------------------------------------------------------------------


def test_metrics_logged_twice_are_there_once(tracking, client):
    run = tracking.open_run("delays", SESSION, {}, {})
    metrics = {10: {"loss": 0.5, "rate": 0.1}, 20: {"loss": 0.4}}
    assert tracking.log_metrics(run, metrics) == Logged()
    assert tracking.log_metrics(run, metrics) == Logged()
    assert history(client, run, "loss") == [(10, 0.5), (20, 0.4)]
    assert history(client, run, "rate") == [(10, 0.1)]


def test_a_replay_by_another_process_adds_only_what_is_missing(tracking, client):
    run = tracking.open_run("delays", SESSION, {}, {})
    tracking.log_metrics(run, {20: {"loss": 0.4}})
    other = Tracking(tracking.uri, tracking.home)
    other.log_metrics(run, {10: {"loss": 0.5}, 20: {"loss": 0.4, "auc": 0.7}, 30: {"loss": 0.3}})
    assert sorted(history(client, run, "loss")) == [(10, 0.5), (20, 0.4), (30, 0.3)]
    assert history(client, run, "auc") == [(20, 0.7)]


def test_two_that_follow_one_session_at_once_log_each_step_once(tracking, client):
    run = tracking.open_run("delays", SESSION, {}, {})
    followers = [Tracking(tracking.uri, tracking.home) for _ in range(2)]

    def follow(follower):
        for step in range(0, 60, 3):
            chunk = {step + i: {"loss": 1.0 / (1 + step + i)} for i in range(3)}
            assert follower.log_metrics(run, chunk) == Logged()

    threads = [threading.Thread(target=follow, args=(f,)) for f in followers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(step for step, _ in history(client, run, "loss")) == list(range(60))


def test_more_metrics_than_one_call_takes_are_all_logged(tracking, client):
    run = tracking.open_run("delays", SESSION, {}, {})
    tracking.log_metrics(run, {step: {"a": 1.0, "b": 2.0, "c": 3.0} for step in range(700)})
    assert len(history(client, run, "c")) == 700


def test_a_batch_whose_answer_was_lost_is_not_logged_again(tracking, client, monkeypatch):
    run = tracking.open_run("delays", SESSION, {}, {})
    tracking.log_metrics(run, {1: {"loss": 0.9}})
    real = type(client).log_batch

    def loses_the_answer(*args, **kwargs):
        real(*args, **kwargs)
        raise ConnectionResetError("connection reset by peer")

    monkeypatch.setattr(type(client), "log_batch", loses_the_answer)
    assert isinstance(tracking.log_metrics(run, {2: {"loss": 0.8}}), Unavailable)
    monkeypatch.undo()
    assert tracking.log_metrics(run, {2: {"loss": 0.8}, 3: {"loss": 0.7}}, now=True) == Logged()
    assert history(client, run, "loss") == [(1, 0.9), (2, 0.8), (3, 0.7)]


def test_a_point_that_a_slow_server_takes_late_is_there_once(tracking, client, monkeypatch):
    """The first call is given up, and arrives after the second one."""
    run = tracking.open_run("delays", SESSION, {}, {})
    metrics, times = {2: {"loss": 0.8}}, {2: datetime(2026, 1, 2, 3, tzinfo=UTC)}
    real, late = type(client).log_batch, []

    def gives_up(*args, **kwargs):
        late.append((args, kwargs))
        raise TimeoutError("read timed out")

    monkeypatch.setattr(type(client), "log_batch", gives_up)
    assert isinstance(tracking.log_metrics(run, metrics, times), Unavailable)
    monkeypatch.undo()
    assert tracking.log_metrics(run, metrics, times, now=True) == Logged()
    for args, kwargs in late:
        real(*args, **kwargs)
    assert history(client, run, "loss") == [(2, 0.8)]
    (point,) = client.get_metric_history(run, "loss")
    assert point.timestamp == times[2].timestamp() * 1000


def test_an_artifact_logged_twice_is_the_newer_one_below_the_state_folder(tracking, tmp_path):
    run = tracking.open_run("delays", SESSION, {}, {})
    page = tmp_path / "report.html"
    for content in ("old", "new"):
        page.write_text(content)
        assert tracking.log_artifact(run, page) == Logged()
    (found,) = (tracking.home / "mlartifacts").rglob("report.html")
    assert found.read_text() == "new"


# --- models and aliases ---------------------------------------------------------------------------


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


def aliased(client) -> dict[str, str]:
    versions = {v.version: v.tags[MODEL_TAG] for v in client.search_model_versions()}
    aliases = client.get_registered_model(PIPELINE).aliases
    return {name: versions[int(version)] for name, version in aliases.items()}


# --- when it is not there -------------------------------------------------------------------------


def test_a_dead_server_is_an_outcome_of_every_call_and_its_password_is_in_none(dead, tmp_path):
    outcomes = [
        dead.open_run("delays", SESSION, {}, {}),
        dead.log_metrics("run", {1: {"loss": 0.5}}, now=True),
        dead.log_artifact("run", tmp_path),
        dead.link_model(PIPELINE, A, "/objects/a", SESSION, "run"),
        dead.set_stage_aliases(PIPELINE, {}, LEDGER),
        dead.close("run", "FINISHED"),
    ]
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
    said = " ".join(outcome.reason for outcome in outcomes) + repr(dead)
    assert "http://127.0.0.1" in said
    assert "hunter2" not in said
    assert "somebody" not in said


def test_metrics_do_not_wait_for_a_dead_server_again_and_again(dead):
    tracking = replace(dead, pause=3600.0)
    assert isinstance(tracking.log_metrics("run", {1: {"loss": 0.5}}), Unavailable)
    for step in range(100):
        outcome = tracking.log_metrics("run", {step: {"loss": 0.5}})
        assert isinstance(outcome, Unavailable)
        assert outcome.reason.startswith("the server did not answer; next try in 3")


def test_a_run_that_is_gone_is_an_outcome(tracking):
    outcome = tracking.log_metrics("0" * 32, {1: {"loss": 0.5}})
    assert isinstance(outcome, Unavailable)
    assert "0" * 32 in outcome.reason


def test_a_state_folder_that_cannot_be_used_is_an_outcome(tmp_path):
    (tmp_path / "file").write_text("")
    home = tmp_path / "file" / "home"
    outcome = Tracking(f"sqlite:///{home}/mlflow.db", home).ensure_database()
    assert isinstance(outcome, Unavailable)


@pytest.mark.parametrize(
    ("uri", "error"),
    [
        ("http://me:p%40ss@host:5000", "API request to http://me:p%40ss@host:5000/api failed"),
        ("postgresql://me:p%40ss@host/db", 'password "p@ss" of postgresql://me:p%40ss@host/db'),
        ("postgresql://me:/p@ss@host/db", 'password "/p@ss" of postgresql://me:/p@ss@host/db'),
        ("postgresql://me:#p%40ss@host/db", "postgresql://me:#p%40ss@host/db is away"),
        ("postgresql://me:?p%40ss@host/db", "postgresql://me:?p%40ss@host/db is away"),
        ("postgresql://host/db?user=me&password=p%40ss", "postgresql://host/db?password=p%40ss"),
    ],
)
def test_credentials_are_in_no_message(tmp_path, uri, error):
    said = Server(uri, tmp_path).said(ConnectionError(error))
    assert "p@ss" not in said
    assert "p%40ss" not in said
    assert "host" in said


def test_what_the_user_set_for_mlflow_stands_but_for_printing_addresses():
    program = (
        "import os; from ml_assets.records.tracking.mlflow_server import configure; configure();"
        "print(os.environ['MLFLOW_HTTP_REQUEST_TIMEOUT'],"
        " os.environ['MLFLOW_HTTP_REQUEST_MAX_RETRIES'], os.environ['MLFLOW_DISABLE_TELEMETRY'],"
        " os.environ['MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT'])"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
    asked = {
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "99",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "false",
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["99", "2", "true", "true"]
