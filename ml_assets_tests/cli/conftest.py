"""A home with nothing in it, whose pipelines lie beside its state."""

from pathlib import Path

import polars as pl
import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ML_ASSETS_SOURCES", str(tmp_path / "sources"))
    monkeypatch.setenv("ML_ASSETS_PIPELINES", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", "")
    return tmp_path


@pytest.fixture
def houses(tmp_path: Path) -> Path:
    """A table that is not flights: a text key, nulls, an identifier, a date, no times."""
    rows = 60
    file = tmp_path / "houses.csv"
    pl.DataFrame(
        {
            "plot": [f"p{n}" for n in range(rows)],
            "street": [f"street {n} of many" for n in range(rows)],
            "area": [None if n == 3 else 50.5 + n for n in range(rows)],
            "rooms": [n % 5 for n in range(rows)],
            "built": [f"19{n % 90 + 10}-01-31" for n in range(rows)],
            "kind": ["flat" if n % 3 else "house" for n in range(rows)],
            "garden": [n % 2 for n in range(rows)],
        }
    ).write_csv(file)
    return file
