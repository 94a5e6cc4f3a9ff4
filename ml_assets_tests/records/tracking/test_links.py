"""Addresses come from the settings, and hold no password."""

from pathlib import Path

import pytest

from ml_assets.errors import SettingsError
from ml_assets.records.tracking.links import Links, run_note
from ml_assets.settings import read_settings

MODEL = "0123456789abcdef" * 4


def links(tmp_path: Path, **environment: str) -> Links:
    return Links.of(read_settings({"ML_ASSETS_HOME": str(tmp_path), **environment}))


def test_every_default_is_what_the_ui_command_serves(tmp_path: Path) -> None:
    here = links(tmp_path)
    assert here.asset("irises/feature_set") == "http://127.0.0.1:3000/assets/irises/feature_set"
    assert here.run("r") == "http://127.0.0.1:3000/runs/r"
    assert here.report("irises", MODEL) == "http://127.0.0.1:3001/irises/0123456789abcdef.html"
    assert here.tracking_run("m") == "http://127.0.0.1:3002/#/runs/m"


def test_a_team_sets_its_own_addresses(tmp_path: Path) -> None:
    own = links(
        tmp_path,
        ML_ASSETS_UI_URL="https://dagster.example/team/",
        ML_ASSETS_REPORTS_URL="https://reports.example",
        MLFLOW_TRACKING_URI="https://someone:hush@mlflow.example:5000",
    )
    assert own.run("r") == "https://dagster.example/team/runs/r"
    assert own.registered_model("irises") == "https://mlflow.example:5000/#/models/irises"


@pytest.mark.parametrize("value", ["3000", "ftp://x", "javascript:alert(1)", "http://u:p@host"])
def test_what_no_browser_should_open_is_refused_without_being_repeated_as_a_secret(
    tmp_path: Path, value: str
) -> None:
    with pytest.raises(SettingsError, match="ML_ASSETS_UI_URL") as refused:
        links(tmp_path, ML_ASSETS_UI_URL=value)
    assert "u:p" not in str(refused.value)


def test_the_note_names_the_report_once_there_is_one(tmp_path: Path) -> None:
    here = links(tmp_path)
    assert run_note(here, "irises", "r", None).count("](") == 2
    there = here.report("irises", MODEL)
    assert run_note(here, "irises", "r", there).endswith(f"[evaluation report]({there})")
