"""A first contract from what was read, never over a file; Great Expectations' pages of one."""

import json
from pathlib import Path

import pytest

from ml_assets.assets.validated_table.contract.suite import load_contract
from ml_assets.cli.main import main
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

PROPOSE = ("data", "contract", "propose", "irises", "flowers")


@pytest.fixture(scope="module")
def was_read(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The irises, read and not yet held to their contract."""
    world = World(tmp_path_factory.mktemp("world"))
    irises.plant(world.pipelines, world.sources)
    world.cli("run", "irises", "--through", "raw_snapshot")
    return world


@pytest.fixture
def world(was_read: World, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("ML_ASSETS_HOME", "ML_ASSETS_SOURCES", "ML_ASSETS_PIPELINES"):
        monkeypatch.setenv(name, was_read.environment[name])
    monkeypatch.setenv("DAGSTER_HOME", "")
    return was_read


def test_a_proposed_contract_is_written_once_and_met_by_what_was_read(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    file = world.root / "proposed.json"
    capsys.readouterr()
    assert main(PROPOSE) == 0
    printed = json.loads(capsys.readouterr().out)
    assert main((*PROPOSE, "--out", str(file))) == 0
    assert json.loads(file.read_text()) == printed
    file.write_text("mine")
    assert main((*PROPOSE, "--out", str(file))) == 1
    assert "exists already and was not changed" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert main((*PROPOSE, "--out", str(file), "--force")) == 0
    assert load_contract(file).name == "flowers"

    (world.pipelines / "irises" / "flowers.json").write_text(file.read_text())
    assert main(("run", "irises", "--through", "validated_table")) == 0
    assert "[fail]" not in capsys.readouterr().out


def test_a_first_contract_needs_no_contract_and_nothing_that_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh = World(tmp_path / "fresh")
    irises.plant(fresh.pipelines, fresh.sources)
    for name in ("ML_ASSETS_HOME", "ML_ASSETS_SOURCES", "ML_ASSETS_PIPELINES"):
        monkeypatch.setenv(name, fresh.environment[name])
    folder = fresh.pipelines / "irises"
    spec, contract = folder / "defs.yaml", folder / "flowers.json"
    whole = spec.read_text()
    contract.unlink()
    spec.write_text("\n".join(one for one in whole.splitlines() if "contract:" not in one) + "\n")
    assert main(("run", "irises", "--through", "validated_table")) == 1
    said = capsys.readouterr()
    assert "> irises__raw_snapshot__raw_flowers" in said.out, "it is read"
    assert "names no contract, so none of its rows is published. Propose one:" in said.err
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "elsewhere"))  # where nothing was read
    assert main((*PROPOSE, "--out", str(contract))) == 0
    spec.write_text(whole)
    assert main(("run", "irises", "--through", "validated_table")) == 0


def test_a_table_that_was_not_read_says_what_to_do(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("data", "contract", "propose", "irises", "tulips")) == 1
    assert "irises has no source 'tulips'" in capsys.readouterr().err
    assert main((*PROPOSE, "--partition", "2024-01-01")) == 1
    assert "ml-assets run irises --through raw_snapshot" in capsys.readouterr().err


def test_data_docs_are_pages_of_the_contract_and_of_what_was_held_to_it(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(("data", "contract", "docs", "irises")) == 0
    page = Path(capsys.readouterr().out.strip().splitlines()[-1])
    assert page == world.settings.home / "data_docs" / "irises" / "flowers" / "index.html"
    pages = [file.read_text() for file in page.parent.rglob("*.html")]
    assert len(pages) == 3, "the index, the contract, and one table held to it"
    contract = load_contract(world.pipelines / "irises" / "flowers.json")
    column = next(one.kwargs["column"] for one in contract.expectations if "column" in one.kwargs)
    assert any(str(column) in text for text in pages)
    assert main(("data", "contract", "docs", "irises", "flowers")) == 0, (
        "once more, over the old ones"
    )
