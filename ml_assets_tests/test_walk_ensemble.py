"""An ensemble through the command line: killed, trained, gated and released as one, and proved."""

import re
import signal
from pathlib import Path

import pytest

from ml_assets.records.loading import held_manifest
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

pytestmark = pytest.mark.daemon


def plant(root: Path, ensemble: str) -> World:
    world = World(root)
    spec = irises.SPEC.replace("epochs: 30", f"epochs: 30\n    ensemble: {ensemble}")
    irises.plant(world.pipelines, world.sources)
    (world.pipelines / "irises" / "defs.yaml").write_text(spec)
    return world


def networks(world: World) -> int:
    model = world.status("irises")["release"]["version"]
    return held_manifest(world.root / "state" / "objects" / "models" / model, model).ensemble


@pytest.mark.parametrize("ensemble", ["{checkpoints: 2}", "{seeds: 2}"])
def test_it_is_released_as_one_and_proved(tmp_path: Path, ensemble: str) -> None:
    world = plant(tmp_path, ensemble)
    said = world.cli("run", "irises", "--verbose")
    assert ("seed 1 of an ensemble of 2 is trained" in said) == ("seeds" in ensemble)
    assert networks(world) == 2
    sessions = world.root / "state" / "objects" / "sessions"
    trained = sorted(one.name for one in sessions.glob("irises-train-*"))
    assert len(trained) == (2 if "seeds" in ensemble else 1)
    world.cli("run", "irises")
    assert sorted(one.name for one in sessions.glob("irises-train-*")) == trained
    proved = world.cli("release", "prove", "irises")
    for asset in ("configuration", "trained_model", "evaluation_report", "gates"):
        assert re.search(rf"equal +irises/{asset}", proved), proved


def test_killed_twice_it_comes_to_the_same_weights(tmp_path: Path) -> None:
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    whole = plant(tmp_path / "whole", "{seeds: 2}")
    whole.cli("run", "irises")
    killed = plant(tmp_path / "killed", "{seeds: 2}")
    for moment in ("seed 1 of an ensemble of 2", "step 40 of"):
        killed.stopped_at(moment, signal.SIGKILL, "run", "irises", "--verbose")
    killed.cli("run", "irises")
    assert networks(killed) == 2
    versions = {one.status("irises")["release"]["version"] for one in (whole, killed)}
    assert len(versions) == 1
