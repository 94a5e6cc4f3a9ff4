"""Epochs by run config: another model under the same spec, which the spec's own run replaces."""

from pathlib import Path

import pytest

from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World, edit


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("epochs")).plant(irises)


def trained(world: World, *arguments: str) -> str:
    """Train; the model's version."""
    world.cli("run", "irises", "--through", "trained_model", *arguments)
    stages = world.status("irises")["stages"]
    return next(s["version"] for s in stages if s["key"] == "irises/trained_model")


def sessions(world: World) -> int:
    return len(list(world.root.glob("state/**/sessions/irises-train-*")))


@pytest.mark.daemon
def test_other_epochs_are_another_model_until_the_spec_is_run_again(world: World) -> None:
    short = trained(world, "--epochs", "2")
    assert trained(world, "--epochs", "2") == short
    assert sessions(world) == 1
    assert trained(world) != short
    assert sessions(world) == 2
    assert trained(world, "--epochs", "2") == short
    assert sessions(world) == 2  # it was trained before: its model is taken up
    examined = list(world.root.glob("state/**/sessions/irises-sanity-*/attempts/*"))
    assert len(examined) == 1, "epochs do not matter to whether the network is sound"


def test_there_are_no_epochs_below_one(world: World) -> None:
    output = world.cli("run", "irises", "--epochs", "0", code=1)
    assert "epochs is 0; it takes at least one" in output


def test_a_training_that_stops_early_says_so_and_why(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    edit(
        world.pipelines / "irises" / "defs.yaml",
        ("evaluate_every: 20", "evaluate_every: 1"),
        ("patience: 50", "patience: 1"),
    )
    said = world.cli("run", "irises", "--through", "trained_model")
    (early,) = [line for line in said.splitlines() if line.startswith("  stopped early at step ")]
    assert "did not improve in the last 1 evaluation (training.patience); the best is that" in early
