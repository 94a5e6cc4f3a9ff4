"""What somebody says or names is not taken for a line of ours, or for another pipeline."""

from pathlib import Path

import pytest

from ml_assets.assets.released_model.override import Overridden, override
from ml_assets.assets.released_model.rollback import RolledBack, Way, roll_back
from ml_assets.cli.main import main
from ml_assets.cli.output import aligned
from ml_assets.errors import SpecError
from ml_assets.settings import read_settings
from ml_assets.spec.gates import ReleaseSpec
from ml_assets.spec.load import check_spec, pipeline_folders
from ml_assets_tests.records.conftest import PIPELINE, A, B, C, refused, released, store
from ml_assets_tests.worlds import irises

__all__ = ["store"]
FORGED = "ada\n2026-01-01 00:00:00  cafe  to production  auc 0.99  ada  \x1b[2Ka pass"


def test_an_author_of_two_lines_is_one_in_the_ledger_and_on_a_terminal(store) -> None:
    released(store, A)
    released(store, B, champion=A)
    moved = roll_back(store, PIPELINE, Way(B, A), ReleaseSpec(), FORGED, FORGED)
    assert isinstance(moved, RolledBack)
    refused(store, C, champion=A)
    said = override(store, PIPELINE, C, FORGED, FORGED)
    assert isinstance(said, Overridden)
    for entry in (moved.entry, said.entry):
        assert "\n" not in entry.author + entry.reason
        assert entry.author.startswith("ada 2026-01-01")
    [line] = aligned([(FORGED, "x")])
    assert "\n" not in line and "\x1b" not in line


def test_two_rooms_with_a_pipeline_of_one_name_are_told_and_neither_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in ("ours", "theirs"):
        irises.plant(tmp_path / room, tmp_path / "sources")
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ML_ASSETS_PIPELINES", f"{tmp_path / 'ours'}:{tmp_path / 'theirs'}")
    with pytest.raises(SpecError, match=r"Two folders of ML_ASSETS_PIPELINES are called 'irises'"):
        pipeline_folders(read_settings())
    assert main(["check", "irises"]) == 1
    monkeypatch.setenv("ML_ASSETS_PIPELINES", f"{tmp_path / 'ours'}:{tmp_path / 'ours'}")
    assert set(pipeline_folders(read_settings())) == {"irises"}


def test_an_empty_name_is_not_the_folder_of_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path))
    assert main(["release", "verify", ""]) == 2
    assert "The pipeline or folder is empty" in capsys.readouterr().err


def test_a_number_that_yaml_takes_for_text_is_told_how_it_is_written(tmp_path: Path) -> None:
    irises.plant(tmp_path / "pipelines", tmp_path / "sources")
    spec = tmp_path / "pipelines" / "irises" / "defs.yaml"
    spec.write_text(spec.read_text().replace("margin: 0.3", "margin: 1e308"))
    _, [mistake] = check_spec(spec.parent)
    assert "write 1.0e+308" in mistake.remedy and "text" in mistake.remedy
    spec.write_text(spec.read_text().replace("margin: 1e308", "margin: 1.0e+308"))
    found, mistakes = check_spec(spec.parent)
    assert found is not None and not mistakes
