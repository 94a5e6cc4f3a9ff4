"""A home whose MLflow has its database already, and a server that is dead."""

import shutil
import socket

import pytest

from ml_assets.records.tracking.mlflow import Logged, Tracking
from ml_assets.records.tracking.mlflow_server import Server

SESSION = "5e" * 32
LEDGER = "1e" * 32


@pytest.fixture(scope="session")
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
