"""Distillation by the command line: an ensemble is released, then one network that it taught."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from ml_assets_tests.test_walk_ensemble import networks
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

pytestmark = pytest.mark.daemon

LENIENT = irises.SPEC.replace("{kind: champion}", "{kind: champion, margin: 10.0}")


def declare(world: World, training: str) -> None:
    spec = LENIENT.replace("epochs: 30", f"epochs: 30\n    {training}")
    (world.pipelines / "irises" / "defs.yaml").write_text(spec)


def released(root: Path) -> World:
    """The release is an ensemble of two."""
    root.mkdir()
    world = World(root).plant(irises)
    declare(world, "ensemble: {seeds: 2}")
    world.cli("run", "irises")
    assert networks(world) == 2
    return world


def model(world: World) -> dict[str, Any]:
    stages = world.status("irises")["stages"]
    return next(found for found in stages if found["key"] == "irises/trained_model")


def sessions(world: World) -> set[str]:
    return {path.name for path in world.root.glob("state/**/sessions/irises-train-*")}


def test_one_network_is_distilled_gated_proved_and_the_same_after_a_kill(tmp_path: Path) -> None:
    whole, killed = released(tmp_path / "whole"), released(tmp_path / "killed")
    teacher = whole.status("irises")["release"]["version"]
    before = sessions(whole)
    for world in (whole, killed):
        declare(world, "distill: {from: release, weight: 0.5, temperature: 2}")
    whole.cli("run", "irises")
    assert networks(whole) == 1
    release = whole.status("irises")["release"]["version"]
    given = [one["version"] for one in model(whole)["inputs"] if one["key"] == "distill"]
    assert given == [teacher]
    assert str(whole.page("irises", "trained_model")["distill"]) == f"release {teacher[:12]}"
    (new,) = sessions(whole) - before
    (request,) = whole.root.glob(f"state/**/sessions/{new}/**/request*.json")
    assert json.loads(request.read_text())["teacher"]["digest"] == teacher
    whole.cli("run", "irises")
    assert sessions(whole) == before | {new}, "the pupil's release does not make it due again"

    killed.stopped_at("step 40 of", signal.SIGKILL, "run", "irises", "--verbose")
    killed.cli("run", "irises")
    assert killed.status("irises")["release"]["version"] == release

    proved = whole.cli("release", "prove", "irises")
    for asset in ("configuration", "trained_model", "evaluation_report", "gates"):
        assert re.search(rf"equal +irises/{asset}", proved), proved

    declare(whole, f"distill: {{from: {teacher[:12]}}}")
    whole.cli("run", "irises", "--through", "trained_model")
    given = [one["version"] for one in model(whole)["inputs"] if one["key"] == "distill"]
    assert given == [teacher], "a version stays, whatever is released"
    declare(whole, "distill: {from: abcdef}")
    said = whole.cli("run", "irises", "--through", "trained_model", code=1)
    assert "The ledger tells of no model 'abcdef'" in said


def test_without_a_release_the_labels_teach_alone(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    declare(world, "distill: {from: release}")
    said = world.cli("run", "irises", "--through", "trained_model")
    assert "has none in production yet: this training learns from the labels alone" in said
