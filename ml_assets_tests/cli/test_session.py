"""A spec that is wrong is told, and keeps no other pipeline from being looked at."""

import json
from pathlib import Path

import pytest

from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

COMMANDS = [("ops", "reliability"), ("models", "cost")]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Two pipelines, the first of which has a wrong spec."""
    made = World(tmp_path).plant(irises)
    broken = made.pipelines / "a_broken_one"
    broken.mkdir()
    (broken / "defs.yaml").write_text("type: ml_assets.component.MlPipeline\natributes: {}\n")
    made.enter(monkeypatch)
    monkeypatch.setenv("DAGSTER_HOME", "")
    return made


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_question_about_all_is_answered_for_those_that_can_be_read(
    command: tuple[str, ...], cli: Cli
) -> None:
    said = cli(*command, "--json", code=1)
    assert "irises" in json.dumps(json.loads(said.out))
    assert "a_broken_one is left out because its spec is wrong." in said.err
    assert "irises" not in said.err


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_question_about_the_broken_one_is_its_error(command: tuple[str, ...], cli: Cli) -> None:
    assert "left out" not in cli(*command, "a_broken_one", code=1).err
