"""The architecture is executable: layers, what is loaded, budgets, what each file must keep."""

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
from pydantic import BaseModel

from ml_assets.spec.pipeline import PipelineSpec
from ml_assets_tests import guards

PROJECT = Path(__file__).parent.parent
PACKAGE = PROJECT / "ml_assets"

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
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=PROJECT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return (done.stdout.splitlines() or [""])[-1]


# --- budgets and house rules ----------------------------------------------------------------------

LONG_FUNCTION = "def f() -> None:\n" + "    pass\n" * 60
FAULTS = [
    (guards.long_functions, "actions/a.py", LONG_FUNCTION),
    (guards.too_many_long_functions, "actions/a.py", "def f() -> None:\n" + "    pass\n" * 40),
    (guards.long_modules, "actions/a.py", "x = 1\n" * 401),
    (guards.missing_annotations, "actions/a.py", "def f(x) -> None: ..."),
    (guards.missing_annotations, "actions/a.py", "def f(x: int): ..."),
    (guards.missing_annotations, "actions/a.py", "def f(*x, y: int) -> None: ..."),
    (guards.missing_annotations, "actions/a.py", "class A:\n    def f(self): ..."),
    (guards.missing_docstrings, "actions/a.py", "x = 1"),
    (guards.bare_raises, "actions/a.py", "raise RuntimeError('no')"),
    (guards.bare_raises, "actions/a.py", "raise Exception"),
    (guards.prints, "actions/a.py", "print(1)"),
    (
        guards.unquoted_words,
        "assets/raw_snapshot/a.py",
        "try: ...\nexcept A as e:\n    raise B(f'{e} {quoted(e)} {e.strerror}') from e",
    ),
    (
        guards.unquoted_words,
        "assets/training_set/a.py",
        "try: ...\nexcept A as e:\n    f'{cut(str(e))}'",
    ),
    (guards.naive_times, "actions/a.py", "datetime.now()"),
    (guards.naive_times, "actions/a.py", "datetime.datetime.utcnow()"),
    (guards.naive_times, "actions/a.py", "datetime.fromtimestamp(0)"),
    (guards.naive_times, "actions/a.py", "date.today()"),
    (guards.naive_times, "actions/a.py", "time.time()"),
    (guards.postponed_annotations, "assets/a.py", "from __future__ import annotations"),
    (guards.postponed_annotations, "component.py", "from __future__ import annotations"),
    (guards.shapeless_names, "runs/utils.py", ""),
    (guards.shapeless_names, "runs/run_manager.py", ""),
    (guards.shapeless_names, "helpers/a.py", ""),
    (guards.unseen_folders, "actions/a.py", ""),
    (guards.nosy_pipelines, "pipelines/flights/features.py", "from ml_assets import store"),
    (
        guards.nosy_pipelines,
        "pipelines/flights/assets.py",
        "import ml_assets.records.ledger.chain",
    ),
    (guards.private_names_of_dagster, "actions/a.py", "import dagster._core.events"),
    (guards.private_names_of_dagster, "actions/a.py", "from dagster._utils import interrupts"),
    (guards.private_names_of_dagster, "actions/a.py", "from dagster_shared import _core"),
    (guards.private_names_of_dagster, "actions/a.py", "dg._core"),
    (guards.dagster_elsewhere, "graph/a.py", "import dagster as dg"),
    (guards.dagster_elsewhere, "assets/raw_snapshot/a.py", "from dagster import AssetKey"),
    (guards.dagster_elsewhere, "records/a.py", "import dagster_k8s"),
    (guards.dagster_elsewhere, "actions/a.py", "import dagster as dg"),
    (guards.dagster_elsewhere, "cli/a.py", "from dagster import DagsterInstance"),
    (guards.dagster_elsewhere, "extras/cost/a.py", "import dagster as dg"),
    (guards.settings_elsewhere, "records/a.py", "read_settings().home"),
    (guards.settings_elsewhere, "extras/cost/a.py", "found = given or read_settings()"),
    (guards.pickles, "actions/a.py", "import pickle"),
    (guards.pickles, "actions/a.py", "from joblib import load"),
    (guards.pickles, "actions/a.py", "torch.load(f)"),
    (guards.pickles, "actions/a.py", "torch.load(f, weights_only=False)"),
    (guards.pickles, "actions/a.py", "np.load(f, allow_pickle=yes)"),
    (guards.pickles, "training/checkpoints/read.py", "import pickle"),
    (guards.executed_text, "actions/a.py", "yaml.load(text, Loader=yaml.Loader)"),
    (guards.executed_text, "actions/a.py", "subprocess.run('ls', shell=True)"),
    (guards.executed_text, "actions/a.py", "os.system('ls')"),
    (guards.executed_text, "actions/a.py", "eval(text)"),
    (guards.executed_text, "actions/a.py", "exec(text)"),
    (guards.pickles, "actions/a.py", "np.load(f, allow_pickle=True)"),
    (guards.markup_outside_templates, "actions/a.py", "f'<b>{name}'"),
    (guards.markup_outside_templates, "reports/a.py", "'<a href=' + to"),
    (guards.markup_outside_templates, "assets/trained_model/page.py", "html.escape(name)"),
    (guards.markup_outside_templates, "assets/a.py", "Markup(name)"),
    (guards.unescaped_templates, "reports/templates/a.html", "{{ name|safe }}"),
    (guards.unescaped_templates, "reports/templates/a.html", "{% autoescape false %}"),
    (guards.stray_environment_reads, "actions/a.py", "os.environ['ML_ASSETS_HOME']"),
    (guards.stray_environment_reads, "actions/a.py", "os.environ.get('ML_ASSETS_HOME', 1)"),
]
GUARDS = list(dict.fromkeys(guard for guard, _, _ in FAULTS))


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.__name__)
def test_the_package_keeps_the_rule(guard: guards.Guard) -> None:
    assert guard(PACKAGE) == []


@pytest.mark.parametrize(("guard", "file", "text"), FAULTS)
def test_a_planted_fault_is_found(
    tmp_path: Path, guard: guards.Guard, file: str, text: str
) -> None:
    fault = tmp_path / file
    fault.parent.mkdir(parents=True, exist_ok=True)
    fault.write_text(text)
    assert len(guard(tmp_path)) == 1


def test_the_command_line_may_print(tmp_path: Path) -> None:
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "a.py").write_text("print(1)")
    assert guards.prints(tmp_path) == []


def test_a_pipeline_may_import_the_rooms_meant_for_it(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    lines = ["from ml_assets.assets.feature_set.history_features import as_of", "import polars"]
    text = "\n".join([*lines, "from ml_assets import spec"])
    (tmp_path / "pipelines" / "a.py").write_text(text)
    assert guards.nosy_pipelines(tmp_path) == []


def test_an_aware_time_is_no_finding(tmp_path: Path) -> None:
    lines = ["datetime.now(UTC)", "datetime.now(tz=UTC)", "datetime.fromtimestamp(0, UTC)"]
    (tmp_path / "a.py").write_text("\n".join([*lines, "time.monotonic()", "zone.now()"]))
    assert guards.naive_times(tmp_path) == []


# --- every declared field is read -----------------------------------------------------------------

DECLARED_ONLY = {
    "Gpt.preset",  # a shape by name: the fields that it fills are read
    "PipelineSpec.schema_version",  # read by pydantic: only schema 1 is accepted
}


def test_every_field_of_a_spec_is_read() -> None:
    assert set(guards.unread_fields(PipelineSpec, PACKAGE)) - DECLARED_ONLY == set()


def test_a_field_that_nothing_reads_is_found(tmp_path: Path) -> None:
    class Inner(BaseModel):
        used: int
        forgotten: int
        only_set: int

    class Outer(BaseModel):
        parts: tuple[Inner, ...] | None

    (tmp_path / "spec").mkdir()
    (tmp_path / "spec" / "rules.py").write_text("x.forgotten")
    (tmp_path / "a.py").write_text("for part in x.parts: part.used\nx.only_set = 1")

    assert guards.unread_fields(Outer, tmp_path) == ["Inner.forgotten", "Inner.only_set"]


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


def test_what_a_program_in_a_text_imports_is_there() -> None:
    """Programs of the long tests stand in texts, where neither a rename nor pyright finds them."""
    plants = ("test_architecture.py", "test_docs.py")
    files = [one for one in committed() if one.suffix == ".py" and one.name not in plants]
    lost = [
        f"{file.name}: {module} has no {name}"
        for file in files
        for module, names in guards.text_imports(file)
        for name in names
        if not _is_there(module, name)
    ]
    assert lost == []


def test_an_import_of_a_text_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text('PROGRAM = """\nfrom ml_assets.spec.load import load_spec, lode_spec\n"""\n')
    assert list(guards.text_imports(file)) == [("ml_assets.spec.load", ["load_spec", "lode_spec"])]
    assert _is_there("ml_assets.spec.load", "load_spec")
    assert not _is_there("ml_assets.spec.load", "lode_spec")
    assert not _is_there("ml_assets.spec.lode", "load_spec")


def _is_there(module: str, name: str) -> bool:
    try:
        has = hasattr(importlib.import_module(module), name)
        return has or importlib.util.find_spec(f"{module}.{name}") is not None
    except ModuleNotFoundError:
        return False


# --- what is committed ----------------------------------------------------------------------------


def test_no_file_names_the_machine_it_was_written_on() -> None:
    assert guards.workplace_paths(committed()) == []


def test_a_path_of_the_workplace_is_found(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("see " + "/".join(["", "work", "main"]) + "\nsee shared/work/main and ~/work/x")
    assert len(guards.workplace_paths([file])) == 1


def test_the_lock_file_holds_versions_only() -> None:
    lines = (PROJECT / "requirements.lock").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [pin for pin in pins if not guards.PIN.fullmatch(pin)] == []
    assert pins == sorted(pins, key=str.lower)
    assert "torch==2.13.0" in pins


def committed() -> list[Path]:
    """Files that git tracks or would track; outside a repository, all but hidden folders."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0:
        files = [PROJECT / name for name in listing.stdout.splitlines()]
        return [file for file in files if file.is_file()]
    tops = [path for path in PROJECT.iterdir() if not path.name.startswith(".")]
    return [file for top in tops for file in [top, *top.rglob("*")] if file.is_file()]
