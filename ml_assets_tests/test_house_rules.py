"""House rules are executable: budgets, what each file must keep, what nothing may do."""

import importlib
import importlib.util
import subprocess
from pathlib import Path

import pytest
from pydantic import BaseModel

from ml_assets.spec.pipeline import PipelineSpec
from ml_assets_tests.guards import boundaries, declarations, safety, style
from ml_assets_tests.guards.source_text import PACKAGE, PROJECT, Guard

# --- budgets and house rules ----------------------------------------------------------------------

LONG_FUNCTION = "def f() -> None:\n" + "    pass\n" * 60
FAULTS = [
    (style.long_functions, "actions/a.py", LONG_FUNCTION),
    (style.too_many_long_functions, "actions/a.py", "def f() -> None:\n" + "    pass\n" * 40),
    (style.long_modules, "actions/a.py", "x = 1\n" * 401),
    (style.missing_annotations, "actions/a.py", "def f(x) -> None: ..."),
    (style.missing_annotations, "actions/a.py", "def f(x: int): ..."),
    (style.missing_annotations, "actions/a.py", "def f(*x, y: int) -> None: ..."),
    (style.missing_annotations, "actions/a.py", "class A:\n    def f(self): ..."),
    (style.missing_docstrings, "actions/a.py", "x = 1"),
    (style.bare_raises, "actions/a.py", "raise RuntimeError('no')"),
    (style.bare_raises, "actions/a.py", "raise Exception"),
    (style.prints, "actions/a.py", "print(1)"),
    (
        safety.unquoted_words,
        "assets/raw_snapshot/a.py",
        "try: ...\nexcept A as e:\n    raise B(f'{e} {quoted(e)} {e.strerror}') from e",
    ),
    (
        safety.unquoted_words,
        "assets/training_set/a.py",
        "try: ...\nexcept A as e:\n    f'{cut(str(e))}'",
    ),
    (style.naive_times, "actions/a.py", "datetime.now()"),
    (style.naive_times, "actions/a.py", "datetime.datetime.utcnow()"),
    (style.naive_times, "actions/a.py", "datetime.fromtimestamp(0)"),
    (style.naive_times, "actions/a.py", "date.today()"),
    (style.naive_times, "actions/a.py", "time.time()"),
    (style.postponed_annotations, "assets/a.py", "from __future__ import annotations"),
    (style.postponed_annotations, "component.py", "from __future__ import annotations"),
    (style.shapeless_names, "runs/utils.py", ""),
    (style.shapeless_names, "runs/run_manager.py", ""),
    (style.shapeless_names, "helpers/a.py", ""),
    (style.unseen_folders, "actions/a.py", ""),
    (boundaries.nosy_pipelines, "pipelines/flights/features.py", "from ml_assets import store"),
    (
        boundaries.nosy_pipelines,
        "pipelines/flights/assets.py",
        "import ml_assets.records.ledger.chain",
    ),
    (boundaries.private_names_of_dagster, "actions/a.py", "import dagster._core.events"),
    (boundaries.private_names_of_dagster, "actions/a.py", "from dagster._utils import interrupts"),
    (boundaries.private_names_of_dagster, "actions/a.py", "from dagster_shared import _core"),
    (boundaries.private_names_of_dagster, "actions/a.py", "dg._core"),
    (boundaries.dagster_elsewhere, "graph/a.py", "import dagster as dg"),
    (boundaries.dagster_elsewhere, "assets/raw_snapshot/a.py", "from dagster import AssetKey"),
    (boundaries.dagster_elsewhere, "records/a.py", "import dagster_k8s"),
    (boundaries.dagster_elsewhere, "actions/a.py", "import dagster as dg"),
    (boundaries.dagster_elsewhere, "cli/a.py", "from dagster import DagsterInstance"),
    (boundaries.dagster_elsewhere, "extras/cost/a.py", "import dagster as dg"),
    (boundaries.settings_elsewhere, "records/a.py", "read_settings().home"),
    (boundaries.settings_elsewhere, "extras/cost/a.py", "found = given or read_settings()"),
    (safety.pickles, "actions/a.py", "import pickle"),
    (safety.pickles, "actions/a.py", "from joblib import load"),
    (safety.pickles, "actions/a.py", "torch.load(f)"),
    (safety.pickles, "actions/a.py", "torch.load(f, weights_only=False)"),
    (safety.pickles, "actions/a.py", "np.load(f, allow_pickle=yes)"),
    (safety.pickles, "training/checkpoints/read.py", "import pickle"),
    (safety.executed_text, "actions/a.py", "yaml.load(text, Loader=yaml.Loader)"),
    (safety.executed_text, "actions/a.py", "subprocess.run('ls', shell=True)"),
    (safety.executed_text, "actions/a.py", "os.system('ls')"),
    (safety.executed_text, "actions/a.py", "eval(text)"),
    (safety.executed_text, "actions/a.py", "exec(text)"),
    (safety.pickles, "actions/a.py", "np.load(f, allow_pickle=True)"),
    (safety.markup_outside_templates, "actions/a.py", "f'<b>{name}'"),
    (safety.markup_outside_templates, "reports/a.py", "'<a href=' + to"),
    (safety.markup_outside_templates, "assets/trained_model/page.py", "html.escape(name)"),
    (safety.markup_outside_templates, "assets/a.py", "Markup(name)"),
    (safety.unescaped_templates, "reports/templates/a.html", "{{ name|safe }}"),
    (safety.unescaped_templates, "reports/templates/a.html", "{% autoescape false %}"),
    (boundaries.stray_environment_reads, "actions/a.py", "os.environ['ML_ASSETS_HOME']"),
    (boundaries.stray_environment_reads, "actions/a.py", "os.environ.get('ML_ASSETS_HOME', 1)"),
]
GUARDS = list(dict.fromkeys(guard for guard, _, _ in FAULTS))


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.__name__)
def test_the_package_keeps_the_rule(guard: Guard) -> None:
    assert guard(PACKAGE) == []


@pytest.mark.parametrize(("guard", "file", "text"), FAULTS)
def test_a_planted_fault_is_found(tmp_path: Path, guard: Guard, file: str, text: str) -> None:
    fault = tmp_path / file
    fault.parent.mkdir(parents=True, exist_ok=True)
    fault.write_text(text)
    assert len(guard(tmp_path)) == 1


def test_the_command_line_may_print(tmp_path: Path) -> None:
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "a.py").write_text("print(1)")
    assert style.prints(tmp_path) == []


def test_a_pipeline_may_import_the_rooms_meant_for_it(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    lines = ["from ml_assets.assets.feature_set.history_features import as_of", "import polars"]
    text = "\n".join([*lines, "from ml_assets import spec"])
    (tmp_path / "pipelines" / "a.py").write_text(text)
    assert boundaries.nosy_pipelines(tmp_path) == []


def test_an_aware_time_is_no_finding(tmp_path: Path) -> None:
    lines = ["datetime.now(UTC)", "datetime.now(tz=UTC)", "datetime.fromtimestamp(0, UTC)"]
    (tmp_path / "a.py").write_text("\n".join([*lines, "time.monotonic()", "zone.now()"]))
    assert style.naive_times(tmp_path) == []


# --- every declared field is read -----------------------------------------------------------------

DECLARED_ONLY = {
    "Gpt.preset",  # a shape by name: the fields that it fills are read
    "PipelineSpec.schema_version",  # read by pydantic: only schema 1 is accepted
}


def test_every_field_of_a_spec_is_read() -> None:
    assert set(declarations.unread_fields(PipelineSpec, PACKAGE)) - DECLARED_ONLY == set()


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

    assert declarations.unread_fields(Outer, tmp_path) == ["Inner.forgotten", "Inner.only_set"]


def test_what_a_program_in_a_text_imports_is_there() -> None:
    """Programs of the long tests stand in texts, where neither a rename nor pyright finds them."""
    plants = ("test_house_rules.py", "test_docs.py")
    files = [one for one in committed() if one.suffix == ".py" and one.name not in plants]
    lost = [
        f"{file.name}: {module} has no {name}"
        for file in files
        for module, names in declarations.text_imports(file)
        for name in names
        if not _is_there(module, name)
    ]
    assert lost == []


def test_an_import_of_a_text_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text('PROGRAM = """\nfrom ml_assets.spec.load import load_spec, lode_spec\n"""\n')
    found = ("ml_assets.spec.load", ["load_spec", "lode_spec"])
    assert list(declarations.text_imports(file)) == [found]
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
    assert declarations.workplace_paths(committed()) == []


def test_a_path_of_the_workplace_is_found(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("see " + "/".join(["", "work", "main"]) + "\nsee shared/work/main and ~/work/x")
    assert len(declarations.workplace_paths([file])) == 1


def test_the_lock_file_holds_versions_only() -> None:
    lines = (PROJECT / "requirements.lock").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [pin for pin in pins if not declarations.PIN.fullmatch(pin)] == []
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
