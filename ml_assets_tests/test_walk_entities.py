"""A split by entity, walked to a release: no bed of irises is in two splits, and each kind is."""

import polars as pl
import pytest

from ml_assets.assets.training_set.shards import load_schema, read_rows
from ml_assets.spec.training_program import Ref
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

BY_BED = "  split: {kind: stratified_group, groups: [bed], validation: 0.2, holdout: 0.3}\n"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Irises that stand five to a bed; the feature function names it."""
    world = World(tmp_path_factory.mktemp("beds")).plant(irises)
    folder = world.pipelines / "irises"
    spec = (folder / "defs.yaml").read_text()
    split = next(line for line in spec.splitlines(keepends=True) if "split:" in line)
    (folder / "defs.yaml").write_text(spec.replace(split, BY_BED))
    features = (folder / "features.py").read_text()
    named = 'return tables["flowers"].with_columns(bed=pl.col("flower") // 5)'
    (folder / "features.py").write_text(features.replace('return tables["flowers"]', named))
    return world


@pytest.fixture(scope="module")
def walked(world: World) -> str:
    return world.cli("run", "irises")


def rows_of(world: World) -> dict[str, pl.DataFrame]:
    stages = world.status("irises")["stages"]
    made = next(stage for stage in stages if stage["key"] == "irises/training_set")
    folder = world.root / "state" / "objects" / "shards" / "irises" / made["version"]
    ref = Ref(uri=str(folder), digest=made["version"])
    schema = load_schema(ref)
    return {split: read_rows(ref, schema, split) for split in schema.splits}


def outcomes(world: World) -> dict[str, bool]:
    """Name of each check -> whether it passed."""
    return {check.check_name: check.passed for check in world.evaluations()}


def test_a_split_by_entity_ends_in_a_release(world: World, walked: str) -> None:
    assert world.status("irises")["release"]["decision"] == "passed"
    assert outcomes(world)["no_shared_keys"]


def test_no_entity_is_in_two_splits_and_each_label_is_in_every_one(
    world: World, walked: str
) -> None:
    rows = rows_of(world)
    beds = [set(frame["bed"]) for frame in rows.values()]
    assert sum(map(len, beds)) == len(set.union(*beds)) == 30
    assert sum(len(frame) for frame in rows.values()) == 150
    for frame in rows.values():
        assert frame["species"].n_unique() == 3


def test_rows_that_lost_their_entity_are_not_split(world: World, walked: str) -> None:
    """The last test of the file: it leaves the pipeline broken."""
    before = world.status("irises")["release"]["version"]
    file = world.pipelines / "irises" / "features.py"
    file.write_text(file.read_text().replace(".with_columns(bed=", ".with_columns(bad="))
    assert "bed" in world.cli("run", "irises", code=1)
    assert world.status("irises")["release"]["version"] == before
