"""A disk that is full, or may only be read, ends a command in a sentence; what reads goes on."""

import json
from pathlib import Path

import pytest

from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.disks import on_a_full_disk, on_a_read_only_disk
from ml_assets_tests.worlds.world import World


@pytest.mark.parametrize("size", ["300k", "1100k", "1800k"])
def test_a_full_disk_is_one_sentence(tmp_path: Path, size: str) -> None:
    """Dagster's instance, its event log and our own store are met by one size each."""
    world = World(tmp_path).plant(irises)
    done = on_a_full_disk(world, size, "run", "irises")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"error: The disk is full: {world.settings.home}" in done.stderr
    assert "`ml-assets ops gc` deletes" in done.stderr.splitlines()[-1]


ROW = {"flower": 1, "sepal_length": 5.1, "sepal_width": 3.5, "petal_length": 1.4}
ROW |= {"petal_width": 0.2, "measured_at": "1936-09-01T00:00:00Z"}


def test_what_reads_works_on_a_read_only_state(released: World) -> None:
    done = on_a_read_only_disk(
        released,
        ["status", "irises"],
        ["release", "history", "irises"],
        ["release", "verify", "irises"],
        ["predict", "irises", "--row", json.dumps(ROW)],
        ["models", "experiments", "irises", "--json"],
        ["data", "read", "irises/training_set", "--limit", "1"],
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "irises: production is model" in done.stdout
    assert "1,setosa,0.9" in done.stdout


@pytest.mark.parametrize("command", [["run", "irises"], ["ops", "gc"], ["ops", "logs", "latest"]])
def test_what_writes_says_that_the_state_is_read_only(released: World, command: list[str]) -> None:
    done = on_a_read_only_disk(released, command)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {released.settings.home}")
    assert "is read-only, and this command writes there" in done.stderr
    assert len(done.stderr.splitlines()) == 1
