"""MLflow that is away or broken is an outcome of each call, and no password is told."""

import os
from dataclasses import replace

import pytest

from ml_assets.records.tracking.mlflow import Tracking, Unavailable
from ml_assets.records.tracking.mlflow_server import Server
from ml_assets_tests.fresh import said_by
from ml_assets_tests.records.conftest import PIPELINE, A
from ml_assets_tests.records.tracking.mlflow.conftest import LEDGER, SESSION


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
    said = said_by(program, env={**environment, **asked})
    assert said.split() == ["99", "2", "true", "true"]
