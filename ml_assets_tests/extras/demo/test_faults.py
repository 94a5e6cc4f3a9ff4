"""Planted faults end as they should, and where a guard is taken away, that is told."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ml_assets.extras.demo.command import FAULTS, PIPELINE
from ml_assets.extras.demo.faults import PLANTS, flip_a_byte, plant, sentences
from ml_assets.extras.demo.outside_world import lay_out
from ml_assets.extras.demo.sandbox import InjectionResult, Ran, Sandbox, refused_by
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.records.load_release import check_release
from ml_assets.settings import Settings, read_settings
from ml_assets.spec.load import load_spec, pipeline_folders
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.worlds.world import World

pytestmark = pytest.mark.timeout(600)
ORIGINAL = pipeline_folders(read_settings({}))[PIPELINE]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder beside which the demo's world lies."""
    return tmp_path_factory.mktemp("plants")


def try_it(home: Path, name: str, original: Path = ORIGINAL) -> tuple[InjectionResult, list[str]]:
    settings = read_settings({"ML_ASSETS_HOME": str(home)})
    told: list[str] = []
    return plant(name, settings, original, settings.sources, told.append), told


def test_every_fault_of_the_command_line_has_a_plant() -> None:
    assert set(FAULTS) == set(PLANTS)


def test_broken_rows_are_quarantined_and_a_worse_file_is_not_published(home: Path) -> None:
    outcome, told = try_it(home, "bad-rows")
    assert outcome.held, told
    assert "5 rows quarantined for between__distance" in outcome.caught
    assert "nothing published, 6,034 rows kept" in outcome.after
    assert sentences(outcome)[-1] == "THE GUARD HELD"
    assert {path.name for path in (home / "planted").iterdir()} == {"bad-rows"}
    assert {path.name for path in home.iterdir()} == {"demo", "planted"}, "nothing of the demo's"


def test_without_its_expectation_the_contract_lets_broken_rows_through_and_that_is_told(
    home: Path, tmp_path: Path
) -> None:
    careless = tmp_path / PIPELINE
    shutil.copytree(ORIGINAL, careless, ignore=shutil.ignore_patterns("__pycache__"))
    contract = careless / "contracts" / "flights.json"
    suite = json.loads(contract.read_text())
    kept = [one for one in suite["expectations"] if one["kwargs"].get("column") != "distance"]
    assert len(kept) < len(suite["expectations"])
    contract.write_text(json.dumps({**suite, "expectations": kept}))
    outcome, _ = try_it(home, "bad-rows", careless)
    assert not outcome.held
    assert "0 rows quarantined" in outcome.caught
    assert sentences(outcome)[-1] == "THE GUARD DID NOT HOLD"


@pytest.mark.plants
@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_caught(tmp_path: Path, name: str) -> None:
    """The whole of it, through the command line; the demo's own state is not begun by it."""
    state = tmp_path / "state"
    own = {"ML_ASSETS_SOURCES": str(state / "demo"), "ML_ASSETS_PIPELINES": "demo"}
    said = World(tmp_path, own).cli("demo", "--plant", name)
    assert "THE GUARD HELD" in said
    assert not (state / "snapshots").exists()


@pytest.mark.plants
def test_a_leak_is_kept_back_though_no_gate_looks_for_it(tmp_path: Path) -> None:
    careless = tmp_path / PIPELINE
    shutil.copytree(ORIGINAL, careless, ignore=shutil.ignore_patterns("__pycache__"))
    spec = careless / "defs.yaml"
    careful = spec.read_text().replace("bound: 0.80}", "bound: 1.0}")
    unguarded = "  leaks: {future_events: {severity: warning}}\n  label:"
    spec.write_text(careful.replace("  label:", unguarded, 1))
    outcome, _ = try_it(tmp_path / "home", "leak", careless)
    assert outcome.held
    assert "the check parity of feature_set" in outcome.caught
    assert outcome.after == "no feature row is published, so nothing is trained"


def test_one_changed_byte_is_refused_by_predict_and_told_by_status(
    released: World, tmp_path: Path
) -> None:
    shutil.copytree(released.root, tmp_path, dirs_exist_ok=True)
    world = World(tmp_path, released.extra)
    place = open_pipeline("irises", world.settings)
    assert check_release(place).unusable is None
    model = champion(read(place.store, "irises"))
    assert model is not None
    (weights,) = place.objects.path("models", model).glob("*.safetensors")
    flip_a_byte(weights)
    assert model[:12] in (check_release(place).unusable or "")
    assert "the model cannot be used" in world.cli("status", "irises")
    assert world.status("irises")["release"]["unusable"]
    said = world.cli("predict", "irises", str(world.sources / "irises.csv"), code=1)
    assert model[:12] in said


# --- what no run is needed for --------------------------------------------------------------------


@pytest.fixture
def sandbox(home: Path) -> Callable[[str], Sandbox]:
    """The sandbox of a plant, over the world that the module laid out."""
    lay_out(home / "demo", arrived=14)

    def make(name: str) -> Sandbox:
        return Sandbox(name, home / "sandbox of" / name, ORIGINAL, home / "demo", lambda _: None)

    return make


def test_a_short_pipeline_is_whole_and_keeps_the_guards_as_they_are(
    sandbox: Callable[[str], Sandbox],
) -> None:
    whole = {gate.name: gate for gate in load_spec(ORIGINAL).gates}
    short = sandbox("leak")
    short.prepare(lambda spec: None)
    spec = load_spec(short.declared)
    assert spec.name == short.pipeline == "flight_delays_leak"
    kept = {gate.name: gate for gate in spec.gates}
    assert kept.keys() == whole.keys() - {"near_boosting"}
    assert all(kept[name] == whole[name] for name in kept)


def test_another_try_begins_from_nothing(sandbox: Callable[[str], Sandbox]) -> None:
    again = sandbox("leak")
    again.prepare(lambda spec: None)
    left = again.folder / "state" / "left"
    left.parent.mkdir()
    left.touch()
    again.prepare(lambda spec: None)
    assert not left.exists()


def test_a_refusal_counts_only_from_the_gate_that_guards(sandbox: Callable[[str], Sandbox]) -> None:
    """Nothing was run here, so nothing was caught, whatever the exit code says."""
    bare = sandbox("weak-model")
    bare.prepare(lambda spec: None)
    held, said = refused_by(bare, "quality_floor", Ran(3, ("error: no such file",)))
    assert not held
    assert said.endswith("error: no such file")


def test_a_plant_reads_and_writes_no_state_but_its_own(
    sandbox: Callable[[str], Sandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "SNAPSHOTS", "OBJECTS", "CHECKPOINTS"):
        monkeypatch.setenv(f"ML_ASSETS_{name}", "/nowhere/to/be/seen")
    apart = sandbox("leak")
    apart.prepare(lambda spec: None)
    settings: Settings = apart.settings
    own = str(apart.folder)
    assert all(str(p).startswith(own) for p in (settings.home, settings.snapshots))
    ran = apart.command("status", apart.pipeline)
    assert ran.code == 0
    assert f"state folder {settings.home}" in ran.line("state folder")


def test_the_commands_to_look_can_be_pasted(sandbox: Callable[[str], Sandbox]) -> None:
    export, command = sandbox("leak").look("status x")
    assert "ML_ASSETS_HOME='" in export, "a folder's name with a space"
    assert command == "ml-assets status x"


def test_a_fault_that_is_none_is_wrong_usage(home: Path) -> None:
    world = World(home)
    (home / "pipelines").mkdir(exist_ok=True)
    assert "'../leak' is not one of" in world.cli("demo", "--plant", "../leak", code=2)
