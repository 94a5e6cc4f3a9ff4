"""The architecture is executable: layers, what is loaded, what Dagster is given."""

import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import dagster as dg
import pytest
import yaml

from ml_assets_tests.fresh import said_by
from ml_assets_tests.guards.source_text import PACKAGE, PROJECT

HEAVY = {
    "boto3",
    "great_expectations",
    "jinja2",
    "kubernetes",
    "lightgbm",
    "matplotlib",
    "mlflow",
    "pandas",
    "sklearn",
    "sqlalchemy",
    "torch",
    "xgboost",
}
KNOW_DAGSTER = {
    "actions",
    "adapters",
    "assets",
    "automation",
    "component",
    "definitions",
    "extras",
    "pipelines",
}
NOT_IN_THE_TRAINING_IMAGE = HEAVY - {"torch", "boto3"} | {"dagster", "polars", "pyarrow", "scipy"}


# --- layers ---------------------------------------------------------------------------------------


def test_the_layers_hold() -> None:
    done = lint_imports(PROJECT)
    assert done.returncode == 0, done.stdout


PLANTED = {
    "spec/fault.py": "import ml_assets.store",
    "records/fault.py": "import ml_assets.graph\nimport dagster",
    "unplaced/__init__.py": "",
    "cli/fault.py": "import ml_assets.training",
    "pipelines/fault.py": "import ml_assets.store",
    "training/fault.py": "import polars",
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the linter says of a copy of the package with all of these faults in it."""
    copy = tmp_path_factory.mktemp("planted")
    shutil.copytree(PACKAGE, copy / "ml_assets", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", copy)
    for file, content in PLANTED.items():
        fault = copy / "ml_assets" / file
        fault.parent.mkdir(exist_ok=True)
        fault.write_text(content)
    done = lint_imports(copy)
    assert done.returncode != 0
    return done.stdout


@pytest.mark.parametrize(
    ("contract", "told"),
    [
        ("A room imports only rooms below it", "ml_assets.spec.fault -> ml_assets.store"),
        ("A room imports only rooms below it", "ml_assets.records.fault -> ml_assets.graph"),
        ("A room imports only rooms below it", "- ml_assets.unplaced\n"),
        ("Nobody imports the training program", "ml_assets.cli.fault -> ml_assets.training"),
        ("A team's pipeline imports", "ml_assets.pipelines.fault -> ml_assets.store"),
        ("The training program needs", "ml_assets.training.fault -> polars"),
        ("Dagster stays above the domain", "ml_assets.records.fault -> dagster"),
        ("Packages do not import each other in a circle", "- .spec -> .store (1 import)"),
    ],
)
def test_a_planted_import_breaks_its_contract(broken: str, contract: str, told: str) -> None:
    listing, findings = broken.split("Broken contracts\n")
    lines = [line for line in listing.splitlines() if line.startswith(contract)]
    assert any(line.endswith("BROKEN") for line in lines), broken
    parts = re.split(r"\n(?=[^\n]+\n-{9,}\n)", findings)
    (finding,) = [part for part in parts if part.startswith(contract)]
    assert told in finding


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


# --- what a fresh interpreter loads ---------------------------------------------------------------


def rooms() -> list[str]:
    """Every folder and file at the top of the package."""
    folders = {path.parent.name for path in PACKAGE.glob("*/*.py")}
    return sorted(folders | {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"})


def test_importing_any_room_below_dagster_loads_nothing_heavy() -> None:
    below = {*rooms()} - KNOW_DAGSTER - {"training"}
    assert {"store", "graph", "cli"} <= below
    assert first_loaded({*HEAVY, "dagster"}, *below) == {}


def test_importing_any_other_room_loads_nothing_heavy_but_dagster() -> None:
    assert first_loaded(HEAVY, *KNOW_DAGSTER - {"adapters"}) == {}
    found = first_loaded(HEAVY, "spec", "adapters")
    assert found.keys() == {"sqlalchemy"}, "our instance of Dagster loads its storage"
    assert found["sqlalchemy"].startswith("ml_assets.adapters."), "the module is named"


def test_importing_the_training_program_loads_only_what_its_image_carries() -> None:
    found = loaded_by(IMPORT_ALL, "[]", "ml_assets.training")
    assert "torch" in found
    assert found & NOT_IN_THE_TRAINING_IMAGE == set()


def test_the_first_process_of_a_pod_loads_no_torch() -> None:
    """It fetches and hands over; torch would cost it seconds, and memory to the end."""
    found = loaded_by("import ml_assets.training.staging.__main__")
    assert found & {"torch", "numpy", "boto3"} == set()


def test_what_scores_or_examines_loads_no_checkpoints() -> None:
    """They are a second of a process's start, and ``sympy`` comes with them."""
    found = loaded_by("import ml_assets.training.weights, ml_assets.training.sanity.suite")
    assert "torch" in found
    assert "sympy" not in found


def test_importing_the_spec_loads_no_engine() -> None:
    found = loaded_by(IMPORT_ALL, "[]", "ml_assets.spec")
    assert found & {*HEAVY, "dagster", "numpy", "polars", "pyarrow"} == set()


def test_loading_the_code_location_loads_nothing_heavy(tmp_path: Path) -> None:
    program = "import ml_assets.definitions as d; d.build(d.read_settings()).get_repository_def()"
    found = loaded_by(program, ML_ASSETS_HOME=str(tmp_path / "home"))
    assert "dagster" in found
    assert found & {*HEAVY, "numpy", "polars", "pyarrow"} == set()


def test_the_code_location_loads_whole_as_the_ui_loads_it(tmp_path: Path) -> None:
    program = "from ml_assets.definitions import defs; d = defs(); d.validate_loadable(d)"
    loaded_by(program, ML_ASSETS_HOME=str(tmp_path / "home"))


IMPORT_ALL = """
import importlib, json, pkgutil, sys
watched, found = json.loads(sys.argv[1]), {}
for name in sys.argv[2:]:
    room = importlib.import_module(name)
    inside = pkgutil.walk_packages(getattr(room, "__path__", []), name + ".")
    for module in [name, *(one.name for one in inside)]:
        if not module.endswith("__main__"):
            importlib.import_module(module)
        found = {one: module for one in watched if one in sys.modules} | found
"""


def first_loaded(watched: set[str], *rooms: str) -> dict[str, str]:
    """Which of the watched a fresh interpreter loads that imports all of the rooms, and where."""
    names = [f"ml_assets.{room}" for room in sorted(rooms)]
    return json.loads(
        _fresh(IMPORT_ALL + "print(json.dumps(found))", json.dumps([*watched]), *names)
    )


def loaded_by(program: str, *arguments: str, **environment: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after running ``program``."""
    shown = "\nimport json, sys; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    return {*json.loads(_fresh(program + shown, *arguments, **environment))}


def _fresh(program: str, *arguments: str, **environment: str) -> str:
    """The last line that a fresh interpreter prints."""
    said = said_by(program, *arguments, env={**os.environ, **environment}, cwd=PROJECT)
    return (said.splitlines() or [""])[-1]


# --- what Dagster is given ------------------------------------------------------------------------


def test_dagster_takes_its_configuration_and_phones_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    shutil.copy(PROJECT / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        concurrency = instance.get_concurrency_config()
        assert instance.telemetry_enabled is False
        assert instance.run_retries_retry_on_asset_or_op_failure is False
        assert concurrency.run_queue_config is not None
        assert concurrency.run_queue_config.max_concurrent_runs == 2


def test_the_workspace_names_the_composition_root() -> None:
    (entry,) = yaml.safe_load((PROJECT / "workspace.yaml").read_text())["load_from"]
    module = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["dg"]["project"]
    assert entry["python_module"]["module_name"] == module["code_location_target_module"]
    assert importlib.util.find_spec(entry["python_module"]["module_name"])
