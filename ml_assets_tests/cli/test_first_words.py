"""What check, status, report and reset say of a folder where little or nothing was made."""

import json
import re
import sys
from pathlib import Path

import dagster as dg
import pytest

from ml_assets.automation.broken_pipeline import ASSET
from ml_assets.definitions import build
from ml_assets.settings import read_settings
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds import irises


def test_an_unknown_pipeline_names_the_known_ones(home: Path, cli: Cli) -> None:
    irises.plant(home, home / "sources")
    said = cli("status", "tulips", code=1).err
    assert "'tulips'" in said
    assert "irises" in said


def test_one_mistake_is_not_mistakes(home: Path, cli: Cli) -> None:
    irises.plant(home, home / "sources")
    spec = home / "irises" / "defs.yaml"
    spec.write_text(spec.read_text().replace("epochs: 30", "epochs: many"))
    assert "irises: 1 mistake\n" in cli("check", "irises", code=1).out
    assert "1 mistake in " in cli("run", "irises", code=1).err


def test_check_finds_a_missing_contract_and_a_missing_function(home: Path, cli: Cli) -> None:
    irises.plant(home, home / "sources")
    (home / "irises" / "flowers.json").unlink()
    (home / "irises" / "features.py").write_text("")
    said = cli("check", "irises", code=1).out
    assert "sources.flowers.contract" in said
    assert "features.function" in said


def test_check_refuses_a_spot_spec_whose_saves_do_not_fit_the_notice_with_the_arithmetic(
    home: Path, cli: Cli
) -> None:
    irises.plant(home, home / "sources")
    spec = home / "irises" / "defs.yaml"
    spot = "spot: {notice_seconds: 20, write_mb_per_second: 0.001}\n    checkpoint_every: 10"
    spec.write_text(spec.read_text().replace("epochs: 30", f"epochs: 30\n    {spot}"))
    said = cli("check", "irises", code=1).out
    assert "parameters x 3 numbers x 4 bytes (adamw" in said
    assert "but the notice is 20 s" in said
    spec.write_text(
        spec.read_text().replace("write_mb_per_second: 0.001", "write_mb_per_second: 9")
    )
    cli("check", "irises")


def test_check_warns_of_a_package_that_is_missing_here(
    home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    irises.plant(home, home / "sources")
    network = irises.SPEC[irises.SPEC.index("  model:") : irises.SPEC.index("  evaluation:")]
    trees = irises.SPEC.replace(network, "  model: {family: lightgbm}\n")
    (home / "irises" / "defs.yaml").write_text(trees)
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    said = cli("check", "irises").out
    assert "irises: good" in said
    assert "warning: model.family is 'lightgbm'" in said
    assert "remedy: pip install -c requirements.lock -e '.[boosting]'" in said


def test_check_warns_of_sources_that_are_not_on_this_machine(
    home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    irises.plant(home, home / "sources")
    assert "warning: sources" not in cli("check", "irises").out
    spec, file = home / "irises" / "defs.yaml", home / "sources" / "irises.csv"
    file.rename(file.with_name("iris.csv"))
    said = cli("check", "irises").out
    assert f"sources.flowers.path is 'irises.csv', and there is no {file} here" in said
    assert f"it begins below ML_ASSETS_SOURCES, which is {home / 'sources'}" in said
    delta = "kind: delta\n      path: lake/irises\n"
    spec.write_text(re.sub(r"kind: files\n.*path: .*\n.*format: .*\n", delta, spec.read_text()))
    log = home / "sources" / "lake" / "irises" / "_delta_log"
    said = cli("check", "irises").out
    assert f"sources.flowers.path is 'lake/irises', and there is no {log} here" in said
    log.mkdir(parents=True)
    assert "warning: sources" not in cli("check", "irises").out
    monkeypatch.setenv("ML_ASSETS_SOURCES", str(home / "elsewhere"))
    said = cli("check", "irises").out
    assert f"ML_ASSETS_SOURCES is {home / 'elsewhere'}, and there is no such folder here" in said


def test_status_before_anything_is_made_says_what_to_do(home: Path, cli: Cli) -> None:
    irises.plant(home, home / "sources")
    said = cli("status", "irises").out
    assert "ml-assets run irises" in said
    assert "nothing is released yet" in said
    assert str(home / "state") in said
    assert json.loads(cli("status", "irises", "--json").out)["stages"] == []
    assert not (home / "state").exists(), "a question makes no folder"


def test_status_without_a_name_lists_all_pipelines(home: Path, cli: Cli) -> None:
    assert "there is no pipeline yet; make one: ml-assets new" in cli("status").out
    irises.plant(home, home / "sources")
    assert "make it: ml-assets run PIPELINE, one of irises" in cli("status").out
    assert not (home / "state").exists(), "a question makes no folder"
    (home / "state").mkdir()
    assert "irises  Nothing is in production yet: ml-assets run irises\n" in cli("status").out
    (home / "irises" / "defs.yaml").write_text("attributes: {}")
    assert "irises  This pipeline cannot be read: irises: 1 mistake" in cli("status").out
    assert "Name a PIPELINE" in cli("status", "--json", code=2).err


def test_a_report_before_there_is_one_says_what_to_make(home: Path, cli: Cli) -> None:
    irises.plant(home, home / "sources")
    assert "was never materialized" in cli("models", "report", "irises", code=1).err


def test_reset_asks_first(home: Path, cli: Cli) -> None:
    irises.plant(home, home / "sources")
    cli("run", "irises", "--through", "raw_snapshot")
    cli("ops", "reset", code=1)
    assert (home / "state").exists()
    (own := home / "state" / "own.txt").write_text("mine")
    assert f"left as it is: {own}" in cli("ops", "reset", "--yes").out
    assert [*(home / "state").iterdir()] == [own]


def test_a_column_that_the_spec_does_not_name_is_left_out_aloud(home: Path, cli: Cli) -> None:
    irises.plant(home, home / "sources")
    function = home / "irises" / "features.py"
    wide = 'tables["flowers"].with_columns(area=pl.col("petal_length") * pl.col("petal_width"))'
    spec = home / "irises" / "defs.yaml"
    spec.write_text(irises.SPEC.replace("sepal_width, petal_length,", "petal_length,"))
    function.write_text(function.read_text().replace('tables["flowers"]', wide))
    said = cli("run", "irises", "--through", "feature_set").out
    line = "`area` is returned by features.py:build, but not named in features.numeric"
    assert said.count(line) == 1
    assert said.count("returned by") == 1, "a column of the source is passed through, not made"


BROKEN = {
    "no_yaml": "type: [\nattributes: }",
    "a_wrong_key": irises.SPEC.replace("batch_size", "batch_sise"),
}


@pytest.fixture
def beside_broken_ones(home: Path) -> None:
    irises.plant(home, home / "sources")
    for name, text in BROKEN.items():
        (home / name).mkdir()
        (home / name / "defs.yaml").write_text(text)


@pytest.mark.usefixtures("beside_broken_ones")
def test_a_broken_pipeline_is_in_the_way_of_no_other(cli: Cli) -> None:
    said = cli("run", "irises", "--through", "raw_snapshot").out
    assert "irises/raw_snapshot/raw_flowers" in said


@pytest.mark.usefixtures("beside_broken_ones")
def test_a_broken_pipeline_is_told_by_its_name_line_and_remedy(
    cli: Cli,
) -> None:
    loaded = build(read_settings()).get_repository_def()  # what Dagster loads for the UI
    for name in BROKEN:
        said = cli("run", name, code=1).err
        assert said.startswith(f"error: {name}: 1 mistake in ")
        assert "defs.yaml:" in said
        assert "remedy: " in said
        asset = loaded.asset_graph.get(dg.AssetKey([name, ASSET]))
        assert f"{name}: 1 mistake in " in str(asset.description)
        assert "defs.yaml:" in str(asset.description)
    assert loaded.asset_graph.has(dg.AssetKey(["irises", "released_model"]))
