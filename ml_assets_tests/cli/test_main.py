"""The command line: its options are a frozen set, and its errors are for people."""

import argparse
from pathlib import Path

import pytest

from ml_assets.cli.main import main, parser
from ml_assets_tests.worlds import irises

OPTIONS = {
    "demo": set(),
    "land-week": {"weeks"},
    "run": {"pipeline", "as_of", "through", "fresh", "epochs"},
    "new": {"name", "table", "label", "key", "time", "into"},
    "check": {"pipeline"},
    "status": {"pipeline", "json"},
    "history": {"pipeline", "json"},
    "logs": {"run", "follow"},
    "predict": {"pipeline", "file", "row", "format", "output"},
    "read": {"key", "partition", "version", "limit", "format", "output"},
    "report": {"pipeline", "open"},
    "ui": {"port", "host"},
    "gc": {"dry_run", "json"},
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


def test_status_before_anything_is_made_says_what_to_do(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    irises.plant(home, home / "sources")
    assert main(["status", "irises"]) == 0
    said = capsys.readouterr().out
    assert "ml-assets run irises" in said
    assert "nothing is released yet" in said


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
    main(["status", "irises"])
    assert main(["reset"]) == 1
    assert (home / "state").exists()
    assert main(["reset", "--yes"]) == 0
    assert not (home / "state").exists()
