"""The state folder: one holder at a time, one format, and never somebody else's folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ml_assets.errors import SettingsError, StateInUse
from ml_assets.settings import Settings, read_settings
from ml_assets.store import home
from ml_assets.store.home import FORMAT

HOLD = """
import sys, time
from ml_assets.store import home
from ml_assets.settings import read_settings
with home.lock(read_settings(), "a long run"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"ML_ASSETS_HOME": str(tmp_path / "state")})


def test_a_second_holder_is_refused_and_told_who_the_first_is(settings: Settings) -> None:
    env = {**os.environ, "ML_ASSETS_HOME": str(settings.home)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env=env
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        refused = pytest.raises(StateInUse, match=rf"process {holder.pid} \(a long run, since ")
        with refused, home.lock(settings, "another"):
            pass
        holder.kill()
        holder.wait()
        with home.lock(settings, "after its death"):
            pass


def test_preparing_twice_is_safe_and_brings_dagster_yaml_up_to_date(settings: Settings) -> None:
    home.prepare(settings)
    copied = settings.dagster_home / "dagster.yaml"
    copied.write_text("stale")
    home.prepare(settings)
    assert copied.read_text() == (home.PACKAGE / "dagster.yaml").read_text()
    copied.unlink()
    copied.mkdir()
    with pytest.raises(SettingsError, match=r"dagster\.yaml.* Move what is in the way"):
        home.prepare(settings)


@pytest.mark.parametrize("number", [1, 2, 3, FORMAT - 1, FORMAT + 1, "5", None])
def test_a_state_of_any_other_format_is_refused_and_left_as_it_is(
    settings: Settings, number: object
) -> None:
    """Nothing converts an older state: an edited number would have it signed."""
    home.prepare(settings)
    (settings.home / "format.json").write_text(json.dumps({"format": number}))
    before = {path: path.stat().st_mtime_ns for path in settings.home.rglob("*")}
    with pytest.raises(SettingsError, match=f"format {number}; .* format {FORMAT} .* reset"):
        home.prepare(settings)
    assert {path: path.stat().st_mtime_ns for path in settings.home.rglob("*")} == before
    home.reset(settings)
    home.prepare(settings)


def test_reset_deletes_nothing_under_a_daemon_that_works_there(settings: Settings) -> None:
    home.prepare(settings)
    with home.daemon_lock(settings.dagster_home):
        with pytest.raises(StateInUse, match=r"in use by process .*Nothing was deleted"):
            home.reset(settings)
        assert (settings.dagster_home / "dagster.yaml").is_file()
    home.reset(settings)
    assert not settings.home.exists()


def test_reset_deletes_the_state_and_nothing_that_is_not_ours(
    settings: Settings, tmp_path: Path
) -> None:
    home.prepare(settings)
    home.reset(settings)
    assert not settings.home.exists()
    other = read_settings({"ML_ASSETS_HOME": str(tmp_path)})
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(SettingsError, match="nothing was deleted"):
        home.reset(other)
    assert (tmp_path / "precious").exists()


def test_reset_leaves_what_somebody_else_put_there_and_names_it(settings: Settings) -> None:
    home.prepare(settings)
    folder, paper = settings.home / ".venv", settings.home / "thesis.tex"
    folder.mkdir()
    paper.write_text("mine")
    ours = [settings.home / name for name in ("objects", "mlflow.db-wal", ".format.json.0a1b")]
    for file in ours:
        file.write_text("ours")
    assert home.reset(settings) == (str(folder), str(paper))
    assert sorted(settings.home.iterdir()) == [folder, paper]
    home.prepare(settings)
    assert home.reset(settings) == (str(folder), str(paper))


def test_reset_deletes_a_store_that_was_put_elsewhere_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    variables = {"ML_ASSETS_HOME": str(folder), "ML_ASSETS_OBJECTS": str(folder / "a" / "b")}
    settings = read_settings(variables)
    home.prepare(settings)
    (folder / "a" / "b").mkdir(parents=True)
    assert home.reset(settings) == ()
    assert not folder.exists()


def test_reset_deletes_a_link_and_not_what_it_leads_to(settings: Settings, tmp_path: Path) -> None:
    home.prepare(settings)
    big = tmp_path / "big"
    big.mkdir()
    (big / "models").write_text("large")
    (settings.home / "objects").symlink_to(big)
    assert home.reset(settings) == (str(big),)
    assert not settings.home.exists()
    assert (big / "models").read_text() == "large"
