"""A home with nothing in it, whose pipelines lie beside its state."""

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ML_ASSETS_SOURCES", str(tmp_path / "sources"))
    monkeypatch.setenv("ML_ASSETS_PIPELINES", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", "")
    return tmp_path
