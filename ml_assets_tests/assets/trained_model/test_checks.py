"""Sanity checks in real runs: what is not sound is not trained, whatever path leads there."""

import re

import pytest

from ml_assets.adapters.declare_asset import asset_key
from ml_assets.adapters.execute import execute
from ml_assets.adapters.runs import Selection
from ml_assets.definitions import build
from ml_assets.errors import RunFailed
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

WHOLE = 'return tables["flowers"]'
ZEROS = """\
measured = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
    return tables["flowers"].with_columns(pl.col(measured) * 0.0)"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Irises whose features all arrive as zeros."""
    found = World(tmp_path_factory.mktemp("sanity")).plant(irises)
    write_features(found, ZEROS)
    return found


def write_features(world: World, last: str) -> None:
    file = world.pipelines / "irises" / "features.py"
    file.write_text(irises.FEATURES.replace(WHOLE, last))


@pytest.fixture(scope="module")
def refused(world: World) -> str:
    return world.cli("run", "irises", "--verbose", code=1)


def test_a_failing_check_keeps_training_from_beginning_and_says_why(refused: str) -> None:
    assert "[pass] output_bias:" in refused
    assert "[fail] beats_zero_inputs:" in refused
    assert "> irises__train\n" not in refused
    error = refused[refused.index("error: Training did not begin") :]
    assert "begin: 2 sanity checks of the network on its training set failed:" in error
    assert "gradients: 1 of 6 parameters get no gradient to learn by: layers.0.weight" in error
    assert "look whether features arrive as zeros" in error


def test_status_says_it_too(world: World, refused: str) -> None:
    shown = world.cli("status", "irises")
    assert "because the network or the set did not pass its checks" in shown
    assert "[fail] beats_zero_inputs:" in shown
    outcomes = {c["name"]: c["outcome"] for c in world.status("irises")["sanity"]}
    assert outcomes["loss_at_init"] == "passed"
    assert outcomes["beats_zero_inputs"] == "failed"


def test_the_model_materialized_alone_is_refused_as_well(
    world: World, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.enter(monkeypatch)
    graph = open_pipeline("irises", world.settings)
    alone = Selection((asset_key(graph, "checkpoints"), asset_key(graph, "trained_model")), ())
    with world.instance() as instance, pytest.raises(RunFailed) as caught:
        execute(build(world.settings, "irises"), instance, "irises", alone, lambda _: None)
    assert "training does not begin, for 2 sanity checks failed" in str(caught.value)
    assert examinations(world) == 1, "asked again it is the same answer"


@pytest.mark.daemon
def test_mended_it_is_trained(world: World, refused: str) -> None:
    write_features(world, WHOLE)
    said = world.cli("run", "irises", "--through", "trained_model", "--verbose")
    assert re.search(r"make +sanity checks: the training set is due", said)
    assert "[pass] beats_zero_inputs" in said
    assert "> irises__train\n" in said
    assert examinations(world) == 2
    again = world.cli("run", "irises", "--through", "trained_model", "--verbose")
    assert "skip  sanity checks: same training set, same model" in again
    assert "not sound" not in world.cli("status", "irises")


def examinations(world: World) -> int:
    return len(list(world.root.glob("state/**/sessions/irises-sanity-*/attempts/*")))
