"""The default pipeline: what its assets are called, and the leak that can be planted in it."""

import shutil
from pathlib import Path

import pytest

import ml_assets.pipelines
from ml_assets.assets.feature_set.feature_function import load_function
from ml_assets.component import build_pipeline
from ml_assets.extras.demo.faults import LEAKING
from ml_assets.spec.load import load_spec
from ml_assets.store.layout import Address
from ml_assets_tests.worlds.opened import pipeline_of

FOLDER = Path(ml_assets.pipelines.__path__[0]) / "flight_delays"


@pytest.fixture(scope="module")
def spec():
    return load_spec(FOLDER)


def test_each_asset_has_a_name_of_its_own_in_the_lineage(spec) -> None:
    defs = build_pipeline(pipeline_of(FOLDER))
    keys = [key for one in defs.assets or () for key in one.keys]
    names = [key.path[-1] for key in keys]
    assert len(names) == len(set(names))
    assert {"raw_airlines", "airlines", "raw_flights", "flights", "training_set"} <= {*names}
    for key in keys:
        address = Address.of("/".join(key.path))
        assert address.key == "/".join(key.path)
        assert address.source in {None, *spec.sources, *spec.tables}


def test_the_leak_that_the_demo_plants_can_be_loaded(tmp_path: Path) -> None:
    """``ml-assets demo --plant leak`` adds it to the features; what it catches is a long test."""
    folder = shutil.copytree(FOLDER, tmp_path / "leaking")
    file = folder / "features.py"
    file.write_text(file.read_text() + LEAKING)
    assert "PLANTED" in (load_function(folder, "features.py:build", "leaking").__doc__ or "")
