"""Beginning with the release: fresh the first night, then from what was released, written down."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from ml_assets_tests.worlds import deliveries, irises
from ml_assets_tests.worlds.world import World

SPEC = irises.SPEC.replace("    epochs: 30\n", "    epochs: 30\n    init_from: release\n").replace(
    "{kind: champion}", "{kind: champion, margin: 10.0}"
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    found = World(tmp_path_factory.mktemp("warm")).plant(irises)
    declare(found, SPEC)
    return found


def declare(world: World, spec: str) -> None:
    (world.pipelines / "irises" / "defs.yaml").write_text(spec)


def stage(world: World, name: str) -> dict[str, Any]:
    stages = world.status("irises")["stages"]
    return next(found for found in stages if found["key"] == f"irises/{name}")


def sessions(world: World) -> set[str]:
    return {path.name for path in world.root.glob("state/**/sessions/irises-train-*")}


def begun_with(world: World) -> list[str]:
    """The digests that the newest model's record says it began with."""
    inputs = stage(world, "trained_model")["inputs"]
    return [found["version"] for found in inputs if found["key"] == "init_from"]


def test_the_first_night_is_fresh_and_the_next_begins_with_the_release(world: World) -> None:
    first = world.cli("run", "irises")
    assert "irises has none in production yet: this training begins with random weights" in first
    assert begun_with(world) == []
    release = world.status("irises")["release"]["version"]
    before = sessions(world)

    assert "training begins with the weights" not in world.cli("run", "irises")
    assert sessions(world) == before, "a release does not make its own model due again"

    second = world.cli("run", "irises", "--fresh", "--through", "trained_model")
    assert f"({release[:12]}): it knows every input and every category" in second
    assert begun_with(world) == [release]
    (new,) = sessions(world) - before
    (request,) = world.root.glob(f"state/**/sessions/{new}/**/request*.json")
    assert json.loads(request.read_text())["init"]["digest"] == release
    assert stage(world, "trained_model")["version"] != release


def test_a_file_of_the_folder_is_taken_and_one_that_is_missing_is_named(world: World) -> None:
    model = stage(world, "trained_model")["version"]
    (weights,) = world.root.glob(f"state/**/models/{model}/weights.safetensors")
    copy = world.pipelines / "irises" / "start.safetensors"
    named = f"init_from: start.safetensors@sha256:{_sha256(weights)}"
    declare(world, SPEC.replace("init_from: release", named))
    said = world.cli("check", "irises", code=1)
    assert f"there is no file {copy.resolve()}" in said
    copy.write_bytes(weights.read_bytes())
    world.cli("check", "irises")
    said = world.cli("run", "irises", "--through", "trained_model")
    assert "its columns and categories are used unchanged" in said
    assert begun_with(world) == [_sha256(copy)]
    begun = stage(world, "trained_model")["version"]

    copy.write_bytes(b"weights that saw the holdout")
    for command in (["check", "irises"], ["run", "irises", "--fresh"]):
        said = world.cli(*command, code=1)
        assert f"is not what the spec names: its SHA-256 is {_sha256(copy)}" in said
    assert stage(world, "trained_model")["version"] == begun


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_holdout_that_the_release_was_trained_on_judges_no_model(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    world = World(tmp_path_factory.mktemp("known")).plant(deliveries)
    spec = world.pipelines / "deliveries" / "defs.yaml"
    said = deliveries.SPEC.replace("train: 6", "train: 3").replace("0.55", "0.01")
    said = said.replace("epochs: 6", "epochs: 6\n    init_from: release")
    spec.write_text(said.replace("{kind: champion}", "{kind: champion, margin: 9.0}"))
    world.cli("run", "deliveries")
    release = world.status("deliveries")["release"]["version"]
    said = world.cli("run", "deliveries", "--fresh", "--as-of", "2024-02-26", code=3)
    assert f"it learned from model {release[:12]}, which was trained on rows up to" in said
    assert world.status("deliveries")["release"]["version"] == release


def test_what_an_override_let_pass_is_asked_again_of_the_next_generation(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    world = World(tmp_path_factory.mktemp("generations")).plant(irises)
    declare(world, SPEC.replace("epochs: 30", "epochs: 8"))
    world.cli("run", "irises")
    first = world.status("irises")["release"]["version"]
    declare(world, SPEC.replace("epochs: 30", "epochs: 8").replace("holdout: 0.3", "holdout: 0.4"))
    refused = f"it learned from model {first[:12]}, which was judged by another holdout"
    assert refused in world.cli("run", "irises", code=3)
    world.cli("release", "override", "irises", "--author", "ada", "--reason", "this one alone")
    world.cli("run", "irises")
    second = world.status("irises")["release"]["version"]
    assert second != first
    assert refused in world.cli("run", "irises", "--fresh", code=3)
    assert world.status("irises")["release"]["version"] == second
