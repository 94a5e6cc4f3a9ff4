"""The folders that a new pipeline is made between."""

from pathlib import Path

import pytest


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of sources, with state and pipelines beside them."""
    for name in ("HOME", "PIPELINES", "SOURCES"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(f"ML_ASSETS_{name}", str(tmp_path / name))
    return tmp_path
