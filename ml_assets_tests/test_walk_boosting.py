"""Boosted trees through the command line: released, resumed, and compared across families."""

import dataclasses
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

NETWORK = irises.SPEC[irises.SPEC.index("  model:") : irises.SPEC.index("  evaluation:")]
TREES = """\
  model: {family: lightgbm, rounds: 60, num_leaves: 7, min_child_samples: 5}
  training: {evaluate_every: 4, patience: 50}
"""
HELD_AGAINST = """\
    simple_model: {baseline: trees, min_effect: 0.005}
    baselines:
      - {kind: gradient_boosting, name: trees, iterations: 20}
      - {kind: function, name: petals, function: features.py:by_petals}
      - {kind: value, name: botanist, metrics: {accuracy: 0.5}, source: "a walk, May 1936"}
"""
GATES = """\
    - {kind: baseline, name: beats_petals, metric: log_loss, baseline: petals}
    - {kind: baseline, name: beats_botanist, metric: accuracy, baseline: botanist}
"""
BY_PETALS = '''

def by_petals(train: pl.DataFrame, holdout: pl.DataFrame) -> pl.DataFrame:
    """Short petals are a setosa's, all others are anybody's."""
    longest = train.filter(pl.col("species") == "setosa")["petal_length"].max()
    short = pl.col("petal_length") <= longest
    return holdout.select(
        setosa=pl.when(short).then(0.9).otherwise(0.0),
        versicolor=pl.when(short).then(0.05).otherwise(0.5),
        virginica=pl.when(short).then(0.05).otherwise(0.5),
    )
'''


def plant(root: Path, model: str = TREES) -> World:
    """A state folder whose one pipeline has this model."""
    world = World(root)
    irises.plant(world.root / "pipelines", world.sources)
    declare(world, model)
    return world


def declare(world: World, model: str) -> None:
    spec = irises.SPEC.replace(NETWORK, model).replace("    baselines:\n", HELD_AGAINST)
    spec = spec.replace("{kind: champion}", "{kind: champion, margin: 10.0}")
    folder = world.root / "pipelines" / "irises"
    (folder / "defs.yaml").write_text(spec.rstrip() + "\n" + GATES)
    (folder / "features.py").write_text(irises.FEATURES + BY_PETALS)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    found = plant(tmp_path_factory.mktemp("boosted"))
    found.cli("run", "irises")
    return found


def release(world: World) -> dict[str, Any]:
    return world.status("irises")["release"]


def test_boosted_trees_are_released(world: World) -> None:
    found = release(world)
    assert found["stage"] == "production"
    assert found["metrics"]["accuracy"] > 0.8


def test_the_page_says_whether_they_are_worth_their_cost(world: World) -> None:
    html = Path(world.cli("models", "report", "irises").strip()).read_text()
    assert "Is it worth its cost?" in html
    assert "gradient boosting itself, so there is nothing simpler to release" in html
    assert "lightgbm, at most 60 rounds in one process" in html


def test_the_model_is_held_against_a_rule_of_the_teams_and_a_declared_number(world: World) -> None:
    html = Path(world.cli("models", "report", "irises").strip()).read_text()
    assert " of petals" in html
    assert "above the 0.5000 of botanist, declared: a walk, May 1936" in html
    assert "botanist is declared, not scored: a walk, May 1936" in html


def test_trees_killed_while_they_grow_end_in_the_same_model(world: World, tmp_path: Path) -> None:
    killed = plant(tmp_path)
    killed.stopped_at("round 4 of", signal.SIGKILL, "run", "irises", "--verbose")
    killed.cli("run", "irises")
    assert release(killed)["version"] == release(world)["version"]


def test_why_an_earlier_run_failed_is_not_told_again(tmp_path: Path) -> None:
    world = plant(tmp_path)
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "lightgbm.py").write_text("raise ImportError('not today')")
    path = os.pathsep.join([str(shadow), os.environ.get("PYTHONPATH", "")])
    without = dataclasses.replace(world, extra={"PYTHONPATH": path})
    failed = without.cli("run", "irises", "--through", "trained_model", code=1)
    assert "rank 0: model.family is 'lightgbm'" in failed
    said = world.cli("run", "irises", "--through", "trained_model")
    assert "round 4 of" in said
    assert "not today" not in said


def test_a_champion_of_another_family_is_scored_on_the_same_rows(world: World) -> None:
    trees = release(world)["version"]
    declare(world, NETWORK)
    assert f"minus that of champion {trees[:12]} is" in world.cli("run", "irises")
    network = release(world)["version"]
    declare(world, TREES)
    assert f"minus that of champion {network[:12]} is" in world.cli("run", "irises")
    assert release(world)["version"] == trees != network


def test_trees_have_no_epochs(world: World) -> None:
    declare(world, TREES)
    output = world.cli("run", "irises", "--epochs", "3", code=1)
    assert "Set model.rounds" in output
