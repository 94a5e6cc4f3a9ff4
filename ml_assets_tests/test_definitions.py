"""What Dagster loads: every pipeline that is sound, and a visible failure for each that is not."""

import cProfile
import pstats
import shutil
from pathlib import Path
from typing import Any, cast

import dagster as dg
import pytest

from ml_assets.automation.broken_pipeline import ASSET
from ml_assets.definitions import build
from ml_assets.errors import SpecError
from ml_assets.settings import DEMO_PIPELINES, read_settings
from ml_assets.spec.load import pipeline_folders
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds import irises


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A room of pipelines in which irises are sound."""
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ML_ASSETS_SOURCES", str(tmp_path / "sources"))
    monkeypatch.setenv("ML_ASSETS_PIPELINES", str(tmp_path / "pipelines"))
    monkeypatch.setenv("ML_ASSETS_UI_URL", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setenv("DAGSTER_HOME", "")
    irises.plant(tmp_path / "pipelines", tmp_path / "sources")
    return tmp_path / "pipelines"


def second(room: Path, name: str = "tulips") -> Path:
    """Another pipeline beside the irises."""
    shutil.copytree(room / "irises", room / name)
    spec = room / name / "defs.yaml"
    spec.write_text(spec.read_text().replace("name: irises", f"name: {name}", 1))
    return spec


def loaded() -> dg.RepositoryDefinition:
    return build(read_settings()).get_repository_def()


def keys(repository: dg.RepositoryDefinition) -> set[str]:
    return {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}


def test_a_broken_spec_is_one_visible_failure_and_the_others_run(room: Path, cli: Cli) -> None:
    spec = second(room)
    line = 1 + spec.read_text().splitlines().index("  owner: team:botany")
    spec.write_text(spec.read_text().replace("owner: team:botany", "owner: nobody"))
    repository = loaded()
    assert "irises/released_model" in keys(repository)
    (broken,) = (key for key in keys(repository) if key.startswith("tulips/"))
    assert broken == f"tulips/{ASSET}"
    asset = repository.asset_graph.get(dg.AssetKey(["tulips", ASSET]))
    assert f"{spec}:{line}" in str(asset.description)

    sensor = repository.get_sensor_def("tulips__loads")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    with dg.build_sensor_context() as context:
        (told,) = sensor.evaluate_tick(context).asset_events
    assert isinstance(told, dg.AssetCheckEvaluation)
    assert not told.passed and told.severity is dg.AssetCheckSeverity.ERROR
    assert f"{spec}:{line}" in str(told.description)

    assert f"{spec}:{line}" in cli("check", code=1).out
    cli("run", "irises", "--through", "raw_snapshot")
    cli("status", "irises")


def test_a_wrong_contract_of_one_pipeline_stays_with_it(room: Path) -> None:
    second(room)
    contract = room / "tulips" / "flowers.json"
    contract.write_text("{")
    repository = loaded()
    assert "irises/released_model" in keys(repository)
    asset = repository.asset_graph.get(dg.AssetKey(["tulips", ASSET]))
    assert str(contract) in str(asset.description)


def test_two_pipelines_of_one_name_are_told_of_and_the_first_runs(room: Path) -> None:
    spec = second(room)
    spec.write_text(spec.read_text().replace("name: tulips", "name: irises", 1))
    assert {"irises/released_model", f"tulips/{ASSET}"} <= keys(loaded())


OWN = "import dagster as dg\n"
ASSET_OF = '@dg.asset(key=["{pipeline}", "{name}"], deps=[{deps}])\ndef {name}(): ...\n'
RING = OWN + "".join(
    ASSET_OF.format(pipeline="tulips", name=name, deps=f'["tulips", "{other}"]')
    for name, other in (("bees", "pollen"), ("pollen", "bees"))
)
CHECKED = f"""\
{OWN}{ASSET_OF.format(pipeline="tulips", name="bees", deps="")}
@dg.asset(key=["tulips", "pollen"], deps=[bees])
def pollen(): ...
@dg.asset_check(asset=bees, blocking=True, additional_deps=[pollen])
def busy():
    return dg.AssetCheckResult(passed=True)
"""


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (RING, "tulips/bees waits for tulips/pollen; tulips/pollen waits for tulips/bees"),
        (CHECKED, "tulips__bees_busy waits for tulips__pollen"),
    ],
)
def test_assets_that_wait_for_each_other_take_only_their_pipeline_out(
    room: Path, own: str, said: str
) -> None:
    second(room)
    (room / "tulips" / "assets.py").write_text(own)
    repository = loaded()
    assert repository.get_all_jobs()  # what Dagster's code server makes of it
    assert "irises/released_model" in keys(repository)
    assert {key for key in keys(repository) if key.startswith("tulips/")} == {f"tulips/{ASSET}"}
    told = str(repository.asset_graph.get(dg.AssetKey(["tulips", ASSET])).description)
    assert f"{room / 'tulips' / 'assets.py'}: Assets wait for each other: " in told
    assert said in told
    with pytest.raises(SpecError, match=r"^tulips: .*assets\.py: Assets wait for each other: "):
        build(read_settings(), "tulips")


GATE = """\
@dg.asset_check(asset=["{pipeline}", "{stage}"]{blocking})
def on_noon():
    return dg.AssetCheckResult(passed=False)
"""
SEVERAL = """\
@dg.multi_asset_check(
    specs=[dg.AssetCheckSpec("on_noon", asset=["irises", "trained_model"], blocking=True)]
)
def several():
    yield dg.AssetCheckResult(passed=False)
"""


@pytest.mark.parametrize(
    ("own", "asset"),
    [
        (
            GATE.format(pipeline="irises", stage="evaluation_report", blocking=", blocking=True"),
            "irises/evaluation_report",
        ),
        (
            GATE.format(pipeline="tulips", stage="released_model", blocking=", blocking=True"),
            "tulips/released_model",
        ),
        (SEVERAL, "irises/trained_model"),
    ],
)
def test_a_blocking_check_that_no_run_would_ask_is_refused(
    room: Path, own: str, asset: str, cli: Cli
) -> None:
    (room / "irises" / "assets.py").write_text(OWN + own)
    for command in ("check", "run"):
        told = "".join(cli(command, "irises", code=1))
        assert f"the check 'on_noon' of {asset} is blocking" in " ".join(told.split())
    second(room)
    assert f"irises/{ASSET}" in keys(loaded())


def test_a_check_that_only_reports_and_one_of_an_own_asset_are_kept(room: Path) -> None:
    on_report = GATE.format(pipeline="irises", stage="evaluation_report", blocking="")
    on_own = GATE.format(pipeline="irises", stage="bees", blocking=", blocking=True")
    asset = ASSET_OF.format(pipeline="irises", name="bees", deps="")
    (room / "irises" / "assets.py").write_text(OWN + asset + on_report + on_own.replace("on_", ""))
    found = {key.to_user_string() for key in loaded().asset_graph.asset_check_keys}
    assert {"irises/evaluation_report:on_noon", "irises/bees:noon"} <= found


def test_assets_of_two_teams_that_wait_for_each_other_take_the_second_out(room: Path) -> None:
    second(room)
    second(room, "asters")
    second(room, "violets")
    for pipeline, other in (("irises", "tulips"), ("tulips", "irises")):
        own = OWN + ASSET_OF.format(pipeline=pipeline, name="own", deps=f'["{other}", "own"]')
        (room / pipeline / "assets.py").write_text(own)
    repository = loaded()
    assert repository.get_all_jobs()
    found = {pipeline: set[str]() for pipeline in ("asters", "irises", "tulips", "violets")}
    for key in keys(repository):
        found[key.split("/")[0]].add(key.split("/", 1)[1])
    assert found["tulips"] == {ASSET, "own"}, "own is what the irises name"
    assert found["irises"] == {*found["asters"], "own"}
    assert found["asters"] == found["violets"]


KEY = '@dg.asset(key=["shared"])\ndef shared(): ...\n'
OP = """\
@dg.op
def shared(): ...
@dg.graph_asset(key=["{pipeline}", "own"])
def own():
    return shared()
"""
RESOURCE = """\
@dg.asset(key=["{pipeline}", "own"], resource_defs={{"shared": dg.ResourceDefinition(lambda _: 1)}})
def own(): ...
"""


@pytest.mark.parametrize("own", [KEY, OP, RESOURCE])
def test_what_two_teams_call_the_same_takes_the_second_out(room: Path, own: str) -> None:
    second(room)
    second(room, "asters")
    for pipeline in ("irises", "tulips"):
        (room / pipeline / "assets.py").write_text(OWN + own.format(pipeline=pipeline))
    found = keys(loaded())
    assert {key for key in found if key.startswith("tulips/")} == {f"tulips/{ASSET}"}
    assert {"asters/released_model", "irises/released_model"} <= found
    assert {"irises/own", "shared"} & found


@pytest.mark.daemon
def test_many_clashes_cost_little_more_than_none(room: Path) -> None:
    folders = [second(room, f"tulips{number:02}").parent for number in range(24)]
    without = calls_to_load()
    for folder in folders[::2]:
        (folder / "assets.py").write_text(OWN + KEY)
    assert calls_to_load() < 2 * without
    assert len([key for key in keys(loaded()) if key.endswith(ASSET)]) == 11


def calls_to_load() -> int:
    """The calls of functions that it takes: no other process of the machine changes them."""
    profile = cProfile.Profile()
    profile.runcall(loaded)
    return cast("Any", pstats.Stats(profile)).total_calls


def test_the_folders_that_are_named_take_the_place_of_the_demo(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {*pipeline_folders(read_settings())} == {"irises"}
    monkeypatch.setenv("ML_ASSETS_PIPELINES", f"demo:{room}")
    assert {*pipeline_folders(read_settings())} == {"flight_delays", "irises"}
    monkeypatch.delenv("ML_ASSETS_PIPELINES")
    assert read_settings().pipelines == (DEMO_PIPELINES,)


def test_a_retired_pipeline_runs_no_more_is_readable_and_comes_back(room: Path, cli: Cli) -> None:
    second(room)
    cli("run", "irises", "--through", "raw_snapshot")
    assert "--author NAME --reason TEXT" in cli("ops", "forget", "irises", code=1).err
    cli("ops", "forget", "irises", "--author", "ann", "--reason", "out of season")
    names = {key.split("/")[0] for key in keys(loaded())}
    assert names == {"tulips"}
    assert {sensor.name.split("__")[0] for sensor in loaded().sensor_defs} <= {"tulips", "alerts"}
    assert "retired by ann" in cli("run", "irises", code=1).err
    assert "irises/raw_snapshot/raw_flowers" in cli("status", "irises").out
    cli("data", "read", "irises/raw_snapshot/raw_flowers", "--limit", "1")
    cli("ops", "forget", "irises", "--undo")
    assert {key.split("/")[0] for key in keys(loaded())} == {"irises", "tulips"}
    cli("run", "irises", "--through", "raw_snapshot")


def test_every_asset_names_its_spec_file_for_the_ui(room: Path) -> None:
    specs = build(read_settings()).resolve_all_asset_specs()
    ours = [spec.metadata for spec in specs if spec.key.path[0] == "irises"]
    places = {
        place.file_path
        for metadata in ours
        for place in metadata["dagster/code_references"].code_references
    }
    assert places == {str(room / "irises" / "defs.yaml")}
