"""Any stored table by its key, as it is and as it was; a wrong key lists what there is."""

import polars as pl
import pytest

from ml_assets.actions import read_table as tables_module
from ml_assets.actions.read_table import read_table, stored_tables
from ml_assets.errors import StorageError
from ml_assets.store.open import open_objects, open_snapshots
from ml_assets_tests.fresh import said_by
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World

ROWS = deliveries.WEEKS * deliveries.ORDERS


@pytest.mark.parametrize(
    ("stage", "rows"),
    [
        ("raw_snapshot/raw_orders", ROWS),
        ("validated_table/orders", ROWS - deliveries.BAD_ROWS),
        ("quarantine/orders", deliveries.BAD_ROWS),
        ("derived_table/closed_orders", ROWS - deliveries.BAD_ROWS),
        ("feature_set", ROWS - deliveries.ORDERS),
    ],
)
def test_every_stage_is_read_over_all_its_partitions(
    released: World, stage: str, rows: int
) -> None:
    table = read_table(f"deliveries/{stage}", settings=released.settings)
    assert table.select(pl.len()).collect().item() == rows


def test_the_training_set_says_which_split_a_row_is_in(released: World) -> None:
    rows = read_table("deliveries/training_set", settings=released.settings).collect()
    sizes = dict(rows.group_by("split").len().iter_rows())
    assert sizes["holdout"] == 2 * deliveries.ORDERS
    assert set(sizes) == {"train", "validation", "holdout"}


def test_one_partition_alone(released: World) -> None:
    week = read_table(
        "deliveries/raw_snapshot/raw_orders", "2024-01-08", settings=released.settings
    )
    assert week.collect()["order"].to_list() == list(
        range(deliveries.ORDERS, 2 * deliveries.ORDERS)
    )


def test_a_commit_and_a_data_version_lead_back_to_what_was(released: World) -> None:
    store = open_snapshots(released.settings.snapshots)
    objects = open_objects(released.settings.objects, released.settings.cache)
    key = "deliveries/validated_table/orders"
    oldest = next(
        commit.id
        for commit in reversed(store.log())
        if any(table.key == key for table in stored_tables(store, commit.id, objects))
    )
    then = read_table(key, version=oldest[:12], settings=released.settings).collect()
    now = read_table(key, settings=released.settings).collect()
    assert 0 < len(then) < len(now)
    made = released.status("deliveries")["stages"]
    version, week = next((s["version"], s["partition"]) for s in made if s["key"] == key)
    one = read_table(key, version=version[:12], settings=released.settings).collect()
    assert one.equals(read_table(key, week, settings=released.settings).collect())


def test_a_wrong_key_names_the_closest_and_lists_all(released: World) -> None:
    with pytest.raises(StorageError) as missed:
        read_table("deliveries/fature_set", settings=released.settings)
    said = str(missed.value)
    assert "Did you mean 'deliveries/feature_set'?" in said
    assert "\n  irises/raw_snapshot/raw_flowers" in said


def test_a_wrong_partition_and_a_wrong_version_say_what_there_is(released: World) -> None:
    with pytest.raises(StorageError, match=r"it has 12: 2024-01-01, .* 2024-03-18"):
        read_table("deliveries/raw_snapshot/raw_orders", "2024-01-02", settings=released.settings)
    with pytest.raises(
        StorageError, match=r"'deadbeef' is not the name of a state, and no data version of"
    ):
        read_table("deliveries/feature_set", version="deadbeef", settings=released.settings)
    now, before = (
        read_table("deliveries/feature_set", version=state, settings=released.settings)
        for state in ("main", "main~1")
    )
    assert now.collect().equals(before.collect()), "the last commits are of the model"


def test_the_documented_call_works_in_a_fresh_python(released: World) -> None:
    text = tables_module.__doc__ or ""
    call = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    program = "\n".join(
        [*call[:-1], f"print({call[-1].replace('flight_delays', 'irises')}.height)"]
    )
    said = said_by(program, env=released.environment)
    assert said.strip() == "150"
