"""A network of a team's own through the command line: released, used, edited, proved."""

import re
from pathlib import Path
from typing import Any

import pytest

from ml_assets_tests.training.networks import BLOCKS, CONVOLUTION, NORMED
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

pytestmark = pytest.mark.daemon

OURS = "model: {family: mlp, width: 32, depth: 2}"
OWN = "model: {family: module, module: network.py:build, config: {channels: 8, depth: 1}}"
CHAMPION = "{kind: champion}"


def plant(root: Path, network: str = CONVOLUTION) -> World:
    world = World(root).plant(irises)
    spec = irises.SPEC.replace(OURS, OWN).replace(CHAMPION, "{kind: champion, margin: 10.0}")
    spec = spec.replace("processes: 1", "processes: 2").replace(
        "microbatches: 12", "microbatches: 2"
    )
    (folder(world) / "defs.yaml").write_text(spec)
    (folder(world) / "network.py").write_text(network)
    (folder(world) / "blocks.py").write_text(BLOCKS)
    return world


def folder(world: World) -> Path:
    return world.pipelines / "irises"


def edit(world: World, old: str, new: str, name: str = "network.py") -> None:
    file = folder(world) / name
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def release(world: World) -> dict[str, Any]:
    return world.status("irises")["release"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """With batch norm: its statistics are in what is released, predicts and is proved."""
    found = plant(tmp_path_factory.mktemp("own"), NORMED)
    assert "trained on 2 processes" in found.cli("run", "irises")
    return found


def test_it_is_released_used_edited_and_proved(world: World, tmp_path: Path) -> None:
    first = release(world)
    assert first["stage"] == "production"
    assert first["metrics"]["accuracy"] > 0.8
    assert "  trained on 2 processes" in world.cli("status", "irises")
    rows = tmp_path / "rows.csv"
    lines = (world.sources / "irises.csv").read_text().splitlines()
    rows.write_text("\n".join(line.rsplit(",", 1)[0] for line in lines[:4]) + "\n")
    before = world.cli("predict", "irises", str(rows))
    assert "setosa" in before

    # a comment is the same code: nothing is made again
    edit(world, "NEVER = 1", "NEVER = 1  # a remark", "blocks.py")
    world.cli("run", "irises")
    assert release(world)["version"] == first["version"]
    proved = world.cli("release", "prove", "irises")
    assert re.search(r"equal +irises/trained_model", proved)
    assert re.search(r"equal +irises/evaluation_report", proved)

    # another network: the release is used by the code that it is of, and is compared with it
    edit(world, "torch.relu(mixed)", "torch.tanh(mixed)", "blocks.py")
    assert world.cli("predict", "irises", str(rows)) == before
    refused = world.cli("release", "prove", "irises", code=3)
    assert "cannot be proved here, because it would be made by other code" in refused
    assert re.search(r"blocks\.py of the network: [0-9a-f]{12}, [0-9a-f]{12} then", refused)
    assert "network.py of" not in refused
    assert "DIFFERS" not in refused
    said = world.cli("run", "irises")
    assert f"minus that of champion {first['version'][:12]} is" in said
    assert release(world)["version"] != first["version"]

    # without the code nothing is loaded
    (kept,) = [
        path
        for path in (world.root / "state" / "objects" / "networks").iterdir()
        if "relu(mixed)" in path.read_text()
    ]
    world.cli(
        "release",
        "rollback",
        "irises",
        "--to",
        first["version"][:12],
        "--reason",
        "test",
        "--author",
        "ann",
    )
    kept.unlink()
    told = world.cli("predict", "irises", str(rows), code=1)
    assert "no copy is kept" in told


def test_a_network_that_takes_the_mean_of_its_rows_is_not_trained(tmp_path: Path) -> None:
    world = plant(tmp_path)
    edit(
        world,
        "return self.last(x.mean(dim=1))",
        "x = x - x.mean(dim=0)\n        return self.last(x.mean(dim=1))",
    )
    said = world.cli("run", "irises", code=1)
    assert "no_batch_leak" in said
