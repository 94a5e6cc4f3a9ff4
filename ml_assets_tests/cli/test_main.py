"""The command line: its options are a frozen set, and its errors are for people."""

import argparse
import json
import sys
from pathlib import Path

import dagster as dg
import pytest

from ml_assets.automation.broken import ASSET
from ml_assets.cli.main import main, parser
from ml_assets.definitions import build
from ml_assets.settings import read_settings
from ml_assets_tests.worlds import irises

OPTIONS = {
    "demo": {"plant"},
    "land-week": {"weeks"},
    "generate": {
        *("folder", "weeks", "start", "seed", "scale", "drift", "nulls", "category", "concept"),
        *("label_delay", "volume", "duplicates", "schema"),
    },
    "run": {"pipeline", "as_of", "through", "fresh", "epochs", "experiment", "hypothesis", "goal"},
    "new": {"name", "table", "label", "key", "time", "into"},
    "check": {"pipeline"},
    "status": {"pipeline", "json"},
    "history": {"pipeline", "json", "check"},
    "was-serving": {"pipeline", "at", "json"},
    "what-if": {"pipeline", "gate", "bound", "json"},
    "promote": {"pipeline"},
    "override": {"pipeline", "model", "author", "reason", "json"},
    "rollback": {"pipeline", "to", "author", "reason", "json"},
    "drift": {"pipeline", "json"},
    "experiments": {"pipeline", "last", "open", "json"},
    "note": {"pipeline", "run", "verdict", "note", "author"},
    "compare": {"pipeline", "before", "after", "json"},
    "logs": {"run", "follow"},
    "predict": {"pipeline", "file", "row", "format", "output"},
    "lookup": {"pipeline", "entity", "json"},
    "prove": {"what", "which", "despite_code", "from_snapshots", "keep", "json"},
    "export": {"pipeline", "to"},
    "verify": {"subject", "key", "head", "json"},
    "data": {"verb"},
    "read": {"key", "partition", "version", "limit", "format", "output"},
    "contract": {"action"},
    "quarantine": {"action"},
    "recall": {"snapshot", "lift", "author", "reason", "dry_run", "json"},
    "reliability": {"pipeline", "days", "json"},
    "cost": {"pipeline", "by", "json"},
    "render": {"pipeline", "verb", "nodes", "attempt", "json"},
    "report": {"pipeline", "open"},
    "card": {"pipeline", "table", "partition", "open"},
    "suspects": {"pipeline", "format", "output"},
    "tune-batch": {"pipeline", "batch", "processes", "threads", "steps", "json"},
    "ui": {"port", "host"},
    "serve-reports": {"port"},
    "drill": {"pipeline"},
    "alerts": {"what"},
    "gc": {"dry_run", "json"},
    "forget": {"pipeline", "author", "reason", "undo"},
    "reset": {"yes"},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ML_ASSETS_SOURCES", str(tmp_path / "sources"))
    monkeypatch.setenv("ML_ASSETS_PIPELINES", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", "")
    return tmp_path


def test_the_options_are_the_documented_ones() -> None:
    found = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    options = {
        name: {action.dest for action in command._actions} - {"help"}
        for name, command in found.choices.items()
    }
    assert options == OPTIONS


def test_help_names_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    said = capsys.readouterr().out
    assert stopped.value.code == 0
    assert set(said.split()) >= set(OPTIONS)
    assert "3 refused by a gate" in said


def test_wrong_usage_exits_2() -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["run"])
    assert stopped.value.code == 2


def test_an_unknown_pipeline_names_the_known_ones(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    irises.plant(home, home / "sources")
    assert main(["status", "tulips"]) == 1
    said = capsys.readouterr().err
    assert "'tulips'" in said
    assert "irises" in said


def test_check_lists_three_mistakes_with_their_remedies_and_exits_1(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    irises.plant(home, home / "sources")
    spec = home / "irises" / "defs.yaml"
    text = spec.read_text().replace("epochs: 30", "epochs: many").replace("width: 32", "witdh: 32")
    spec.write_text(text.replace("at_least: 0.8", "at_least: high"))
    assert main(["check", "irises"]) == 1
    said = capsys.readouterr().out
    assert "irises: 3 mistakes" in said
    assert said.count("remedy:") == 3
    assert "did you mean 'width'?" in said


def test_one_mistake_is_not_mistakes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    irises.plant(home, home / "sources")
    spec = home / "irises" / "defs.yaml"
    spec.write_text(spec.read_text().replace("epochs: 30", "epochs: many"))
    assert main(["check", "irises"]) == 1
    assert "irises: 1 mistake\n" in capsys.readouterr().out
    assert main(["run", "irises"]) == 1
    assert "1 mistake in " in capsys.readouterr().err


def test_check_finds_a_missing_contract_and_a_missing_function(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    irises.plant(home, home / "sources")
    (home / "irises" / "flowers.json").unlink()
    (home / "irises" / "features.py").write_text("")
    assert main(["check", "irises"]) == 1
    said = capsys.readouterr().out
    assert "sources.flowers.contract" in said
    assert "features.function" in said


def test_check_refuses_a_spot_spec_whose_saves_do_not_fit_the_notice_with_the_arithmetic(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    irises.plant(home, home / "sources")
    spec = home / "irises" / "defs.yaml"
    spot = "spot: {notice_seconds: 20, write_mb_per_second: 0.001}\n    checkpoint_every: 10"
    spec.write_text(spec.read_text().replace("epochs: 30", f"epochs: 30\n    {spot}"))
    assert main(["check", "irises"]) == 1
    said = capsys.readouterr().out
    assert "parameters x 3 numbers x 4 bytes (adamw" in said
    assert "and the notice is 20 s" in said
    spec.write_text(
        spec.read_text().replace("write_mb_per_second: 0.001", "write_mb_per_second: 9")
    )
    assert main(["check", "irises"]) == 0


def test_check_warns_of_a_package_that_is_missing_here(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    irises.plant(home, home / "sources")
    network = irises.SPEC[irises.SPEC.index("  model:") : irises.SPEC.index("  evaluation:")]
    trees = irises.SPEC.replace(network, "  model: {family: lightgbm}\n")
    (home / "irises" / "defs.yaml").write_text(trees)
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert main(["check", "irises"]) == 0
    said = capsys.readouterr().out
    assert "irises: good" in said
    assert "warning: model.family is 'lightgbm'" in said
    assert "remedy: pip install -c requirements.lock -e '.[boosting]'" in said


def test_status_before_anything_is_made_says_what_to_do(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    irises.plant(home, home / "sources")
    assert main(["status", "irises"]) == 0
    said = capsys.readouterr().out
    assert "ml-assets run irises" in said
    assert "nothing is released yet" in said
    assert str(home / "state") in said
    assert main(["status", "irises", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stages"] == []
    assert not (home / "state").exists(), "a question makes no folder"


def test_a_report_before_there_is_one_says_what_to_make(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    irises.plant(home, home / "sources")
    assert main(["report", "irises"]) == 1
    assert "was never materialized" in capsys.readouterr().err


def test_a_state_folder_that_is_a_file_is_an_error_that_names_it(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "state").write_text("")
    assert main(["status", "flight_delays"]) == 1
    assert "is a regular file; a folder is expected" in capsys.readouterr().err


def test_reset_asks_first(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    irises.plant(home, home / "sources")
    assert main(["run", "irises", "--through", "raw_snapshot"]) == 0
    assert main(["reset"]) == 1
    assert (home / "state").exists()
    assert main(["reset", "--yes"]) == 0
    assert not (home / "state").exists()


def test_a_column_that_the_spec_does_not_name_is_left_out_aloud(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    irises.plant(home, home / "sources")
    function = home / "irises" / "features.py"
    wide = 'tables["flowers"].with_columns(area=pl.col("petal_length") * pl.col("petal_width"))'
    spec = home / "irises" / "defs.yaml"
    spec.write_text(irises.SPEC.replace("sepal_width, petal_length,", "petal_length,"))
    function.write_text(function.read_text().replace('tables["flowers"]', wide))
    assert main(["run", "irises", "--through", "feature_set"]) == 0
    said = capsys.readouterr().out
    line = "`area` is returned by features.py:build and not named in features.numeric"
    assert said.count(line) == 1
    assert said.count("returned by") == 1, "a column of the source is passed through, not made"


BROKEN = {
    "no YAML": "type: [\nattributes: }",
    "a wrong key": irises.SPEC.replace("batch_size", "batch_sise"),
}


@pytest.fixture(params=BROKEN.values(), ids=list(BROKEN))
def beside_a_broken_one(home: Path, request: pytest.FixtureRequest) -> Path:
    irises.plant(home, home / "sources")
    (home / "a_broken_one").mkdir()
    (home / "a_broken_one" / "defs.yaml").write_text(request.param)
    return home


@pytest.mark.usefixtures("beside_a_broken_one")
def test_a_broken_pipeline_is_in_the_way_of_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "irises", "--through", "raw_snapshot"]) == 0
    assert "irises/raw_snapshot/raw_flowers" in capsys.readouterr().out


@pytest.mark.usefixtures("beside_a_broken_one")
def test_a_broken_pipeline_is_told_by_its_name_line_and_remedy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "a_broken_one"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: a_broken_one: 1 mistake in ")
    assert "defs.yaml:" in said
    assert "remedy: " in said
    loaded = build(read_settings()).get_repository_def()  # what Dagster loads for the UI
    asset = loaded.asset_graph.get(dg.AssetKey(["a_broken_one", ASSET]))
    assert "a_broken_one: 1 mistake in " in str(asset.description)
    assert "defs.yaml:" in str(asset.description)
    assert loaded.asset_graph.has(dg.AssetKey(["irises", "released_model"]))
