"""`ml-assets demo digits`: images in files, a pipeline that is shown once they are there."""

import os
from pathlib import Path

import pytest

from ml_assets.extras.demo.shown_sources import WRITTEN, lay_out_images
from ml_assets.settings import read_settings
from ml_assets.spec.load import pipeline_folders
from ml_assets_tests.worlds.world import World


def test_each_image_is_a_file_of_its_digit_and_the_same_on_every_machine(tmp_path: Path) -> None:
    folder = lay_out_images(tmp_path)
    files = sorted(folder.rglob("*.pgm"))
    assert len(files) == 1797
    assert {file.parent.name for file in files} == {*"0123456789"}
    assert {file.stat().st_mtime for file in files} == {WRITTEN}
    first = folder / "0" / "0000.pgm"
    assert first.read_bytes()[:18] == b"P5 8 8 16\n" + bytes([0, 0, 5, 13, 9, 1, 0, 0])


def test_a_command_that_was_killed_leaves_no_half_of_them(tmp_path: Path) -> None:
    half = tmp_path / ".images" / "0" / "left.pgm"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"P5")
    assert not [*lay_out_images(tmp_path).rglob("left.pgm")]
    os.utime(tmp_path / "images", (1, 1))
    lay_out_images(tmp_path)  # they are there
    assert (tmp_path / "images").stat().st_mtime == 1


def test_the_pipeline_is_shown_once_its_images_are_there(tmp_path: Path) -> None:
    environment = {"ML_ASSETS_HOME": str(tmp_path)}
    assert set(pipeline_folders(read_settings(environment))) == {"flight_delays"}
    (tmp_path / "demo").mkdir()
    lay_out_images(tmp_path / "demo")
    assert set(pipeline_folders(read_settings(environment))) == {"flight_delays", "digits"}


@pytest.mark.daemon
def test_the_demo_releases_a_model_of_images(tmp_path: Path) -> None:
    demo = {"ML_ASSETS_SOURCES": str(tmp_path / "state/demo"), "ML_ASSETS_PIPELINES": "demo"}
    world = World(tmp_path, demo)
    said = world.cli("demo", "digits")
    assert "decision: passed" in said
    assert "the training set has 3 shards" in said
    assert world.status("digits")["release"]["decision"] == "passed"
    assert "decode_seconds" in world.page("digits", "feature_set")
