"""`ml-assets status`: what it says of a release is of the release."""

from pathlib import Path

import pytest

from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World


@pytest.mark.daemon
def test_the_metrics_are_those_of_the_released_model_though_another_was_refused(
    tmp_path: Path,
) -> None:
    world = World(tmp_path).plant(irises)
    world.cli("run", "irises")
    released = world.status("irises")["release"]
    spec = world.pipelines / "irises" / "defs.yaml"
    worse = spec.read_text().replace("epochs: 30", "epochs: 1")
    spec.write_text(worse.replace("at_least: 0.8", "at_least: 0.999"))
    world.cli("run", "irises", code=3)
    now = world.status("irises")["release"]
    assert (now["version"], now["metrics"]) == (released["version"], released["metrics"])
    assert now["metrics"]["accuracy"] > 0.8


@pytest.mark.daemon
def test_a_failure_whose_cause_is_gone_does_not_stand(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    world.cli("run", "irises")
    flowers = world.sources / "irises.csv"
    header, *rows = flowers.read_text().splitlines()
    copies = [f"{9000 + n},{row.partition(',')[2]}" for n, row in enumerate(rows)]
    good = flowers.read_text()
    flowers.write_text("\n".join([header, *rows, *copies]) + "\n")
    world.cli("run", "irises", code=1)
    assert "failed at training_set" in world.cli("status", "irises")
    flowers.write_text(good)
    assert "failed at training_set" in world.cli("status", "irises"), "it was not read again yet"
    world.cli("run", "irises")
    assert "failed at" not in world.cli("status", "irises")
