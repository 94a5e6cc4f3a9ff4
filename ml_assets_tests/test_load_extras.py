"""The extras are imported where a spec or a command asks, and the rest works without them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ml_assets.cli.groups import CommandGroup
from ml_assets.cli.main import commands
from ml_assets.load_extras import COMMANDS, ENGINES, FIELDS, PAGES
from ml_assets_tests.cli.words import TOP
from ml_assets_tests.worlds import deliveries

PROJECT = Path(__file__).parent.parent
PACKAGE = PROJECT / "ml_assets"
NAMES_EXTRAS = {"load_extras.py", "graph/stage_code.py"}
EXTRAS = sorted(folder.parent.name for folder in PACKAGE.glob("extras/*/__init__.py"))
ASKS = {
    "online": "  online: {entity: [depot]}\n",
    "canary": "  release: {to: production, canary: {periods: 1}}\n",
    "canary serving": "  release: {to: production, canary: {periods: 1},"
    " rollout: {entity: [order]}}\n",
}
"""Extras of a field -> lines of a spec that ask for them."""
LOAD = """
import json, sys
from pathlib import Path
from ml_assets.definitions import build
from ml_assets.settings import read_settings
build(read_settings({"ML_ASSETS_PIPELINES": sys.argv[1]}), sys.argv[2]).get_repository_def()
"""
HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "ml_assets.extras" or name.startswith("ml_assets.extras."):
            raise ModuleNotFoundError(f"{name} is deleted")
sys.meta_path.insert(0, Hidden())
"""
SAY = """
print(json.dumps(sorted({n.split(".")[2] for n in sys.modules if n[:17] == "ml_assets.extras."})))
"""


HELPS = f"""
import contextlib, io, json, os, sys
from ml_assets.cli.main import main
for command in sys.argv[1:]:
    if os.fork():
        os.wait()
        continue
    with contextlib.redirect_stdout(io.StringIO()):
        main([*command.split(), "--help"])
    {SAY.strip()}
    sys.stdout.flush()
    os._exit(0)
"""
"""Each command in a process of its own, which has loaded all that they share."""


def extras_after(program: str, *arguments: str) -> list[str]:
    """The extras that a fresh interpreter holds after a program."""
    return json.loads(said_by(program + SAY, *arguments)[-1])


def said_by(program: str, *arguments: str) -> list[str]:
    """The lines that a program prints in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def asking(tmp_path: Path) -> Any:
    """Plants a pipeline whose spec has more lines, and returns where pipelines are looked for."""

    def plant(more: str) -> Path:
        deliveries.plant(tmp_path / "pipelines", tmp_path / "sources")
        spec = tmp_path / "pipelines" / "deliveries" / "defs.yaml"
        spec.write_text(spec.read_text() + more)
        return tmp_path / "pipelines"

    return plant


def test_no_file_of_the_core_names_an_extra_but_the_doors() -> None:
    core = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    named = {
        name
        for name, path in core.items()
        if not name.startswith("extras/") and "ml_assets.extras" in path.read_text()
    }
    assert named == NAMES_EXTRAS


def test_every_extra_has_a_door() -> None:
    doors = [*FIELDS.values(), *ENGINES.values(), *COMMANDS.values(), *PAGES.values()]
    assert {module.split(".")[2] for module in doors} == set(EXTRAS)


@pytest.mark.parametrize("extra", ASKS)
def test_a_spec_that_asks_for_one_imports_that_one(asking: Any, extra: str) -> None:
    assert extras_after(LOAD, str(asking(ASKS[extra])), "deliveries") == extra.split()


def test_the_help_of_a_command_imports_its_own_extra_and_a_list_of_commands_none() -> None:
    groups: dict[str, list[str]] = {"": [], "data": [], "models": [], "release": [], "ops": []}
    own = {command: [module.split(".")[2]] for command, module in COMMANDS.items()}
    wanted = groups | own
    found = said_by(HELPS, *wanted)
    assert dict(zip(wanted, map(json.loads, found), strict=True)) == wanted


def test_a_server_loads_no_online_store_before_entities_are_asked_for() -> None:
    program = "import json, sys\nimport ml_assets.extras.serving.app"
    assert extras_after(program) == ["serving"]


def test_the_definitions_load_where_all_extras_are_deleted(asking: Any) -> None:
    assert extras_after(HIDE + LOAD, str(asking("")), "deliveries") == []


def test_a_deleted_extra_that_a_spec_asks_for_is_missed(asking: Any) -> None:
    with pytest.raises(AssertionError, match="is deleted"):
        extras_after(HIDE + LOAD, str(asking(ASKS["canary"])), "deliveries")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_sentence_that_lists_a_command_is_its_own(command: str) -> None:
    context, found = TOP, commands
    *groups, name = command.split()
    for group in groups:
        inner = found.get_command(context, group)
        assert isinstance(inner, CommandGroup)
        found = inner
    shown = found.get_command(context, name)
    assert shown is not None
    assert (shown.help or "").startswith(found.sentence(name))
