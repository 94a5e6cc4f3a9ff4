"""A first contract from what was read, never over a file; Great Expectations' pages of one."""

import json
from pathlib import Path

import pytest

from ml_assets.assets.validated_table.contract.suite import load_contract
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

PROPOSE = ("data", "contract", "propose", "irises", "flowers")


@pytest.fixture(scope="module")
def was_read(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The irises, read and not yet held to their contract."""
    world = World(tmp_path_factory.mktemp("world")).plant(irises)
    world.cli("run", "irises", "--through", "raw_snapshot")
    return world


@pytest.fixture
def world(was_read: World, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("ML_ASSETS_HOME", "ML_ASSETS_SOURCES", "ML_ASSETS_PIPELINES"):
        monkeypatch.setenv(name, was_read.environment[name])
    monkeypatch.setenv("DAGSTER_HOME", "")
    return was_read


def test_a_proposed_contract_is_written_once_and_met_by_what_was_read(
    world: World, cli: Cli
) -> None:
    file = world.root / "proposed.json"
    printed = json.loads(cli(*PROPOSE).out)
    cli(*PROPOSE, "--out", str(file))
    assert json.loads(file.read_text()) == printed
    file.write_text("mine")
    assert "exists already and was not changed" in cli(*PROPOSE, "--out", str(file), code=1).err
    assert file.read_text() == "mine"
    cli(*PROPOSE, "--out", str(file), "--force")
    assert load_contract(file).name == "flowers"

    (world.pipelines / "irises" / "flowers.json").write_text(file.read_text())
    assert "[fail]" not in cli("run", "irises", "--through", "validated_table").out


def test_a_first_contract_needs_no_contract_and_nothing_that_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    fresh = World(tmp_path / "fresh").plant(irises)
    for name in ("ML_ASSETS_HOME", "ML_ASSETS_SOURCES", "ML_ASSETS_PIPELINES"):
        monkeypatch.setenv(name, fresh.environment[name])
    folder = fresh.pipelines / "irises"
    spec, contract = folder / "defs.yaml", folder / "flowers.json"
    whole = spec.read_text()
    contract.unlink()
    spec.write_text("\n".join(one for one in whole.splitlines() if "contract:" not in one) + "\n")
    said = cli("run", "irises", "--through", "validated_table", code=1)
    assert "> irises__raw_snapshot__raw_flowers" in said.out, "it is read"
    assert "names no contract, so none of its rows is published. Propose one:" in said.err
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "elsewhere"))  # where nothing was read
    cli(*PROPOSE, "--out", str(contract))
    spec.write_text(whole)
    cli("run", "irises", "--through", "validated_table")


def test_a_table_that_was_not_read_says_what_to_do(world: World, cli: Cli) -> None:
    said = cli("data", "contract", "propose", "irises", "tulips", code=1).err
    assert "irises has no source 'tulips'" in said
    said = cli(*PROPOSE, "--partition", "2024-01-01", code=1).err
    assert "ml-assets run irises --through raw_snapshot" in said


def test_data_docs_are_pages_of_the_contract_and_of_what_was_held_to_it(
    world: World, cli: Cli
) -> None:
    page = Path(cli("data", "contract", "docs", "irises").out.strip().splitlines()[-1])
    assert page == world.settings.home / "data_docs" / "irises" / "flowers" / "index.html"
    pages = [file.read_text() for file in page.parent.rglob("*.html")]
    assert len(pages) == 3, "the index, the contract, and one table held to it"
    contract = load_contract(world.pipelines / "irises" / "flowers.json")
    column = next(one.kwargs["column"] for one in contract.expectations if "column" in one.kwargs)
    assert any(str(column) in text for text in pages)
    cli("data", "contract", "docs", "irises", "flowers")  # once more, over the old ones
