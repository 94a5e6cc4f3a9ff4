"""The rows that are kept back are told by the run, and found by the key of their own hour."""

import json
import re
from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import pytest

from ml_assets.actions.quarantine import kept_rows
from ml_assets.actions.read_table import stored_tables
from ml_assets.assets.validated_table.quarantine import REASON
from ml_assets.automation.planner.plan import contiguous
from ml_assets.spec.partitions import PartitionsSpec, windows
from ml_assets.store.layout import Address
from ml_assets.store.objects import LocalObjects
from ml_assets.store.open import open_snapshots
from ml_assets.store.snapshots import SnapshotStore
from ml_assets_tests.worlds import rents
from ml_assets_tests.worlds.world import World

BERLIN = PartitionsSpec(cadence="hourly", start=date(2024, 10, 27), timezone="Europe/Berlin")
KEY = {"column": "flat", "mostly": 0.9}
HOURS = [hour.key for hour in windows(BERLIN, datetime(2024, 10, 27, 3, tzinfo=UTC))]


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    """All of each hour was rejected, that of the change to winter time twice."""
    rows = tmp_path / "rows.parquet"
    pl.DataFrame({"flight": [1], REASON: ["late"]}).write_parquet(rows)
    found = open_snapshots(str(tmp_path / "snapshots"))
    with found.open(found.resolve(), "rejected") as draft:
        for hour in HOURS:
            draft.put(Address("p", "validated_table", "flights", hour).rejected, rows)
        draft.commit("rejected", {})
        draft.publish()
    return found


def test_an_hour_of_which_nothing_was_published_is_shown_by_its_key(store: SnapshotStore) -> None:
    assert "2024-10-27-02:00" in HOURS and "2024-10-27-02:00+0100" in HOURS
    for hour in HOURS:
        assert [one.partition for one in kept_rows(store, "p", "flights", hour)] == [hour]


def test_hours_that_follow_each_other_are_released_together(store: SnapshotStore) -> None:
    kept = [one.partition for one in kept_rows(store, "p") if one.partition]
    assert contiguous(kept, HOURS) == [(HOURS[0], HOURS[-1])]


def test_the_rejected_rows_of_an_hour_are_read_by_its_key(
    store: SnapshotStore, tmp_path: Path
) -> None:
    found = stored_tables(store, store.resolve(), LocalObjects(tmp_path))
    assert {(one.key, one.partition) for one in found} == {("p/rejected/flights", h) for h in HOURS}


def test_a_run_ends_with_the_rows_that_it_kept_back_and_the_next_with_none(tmp_path: Path) -> None:
    world = World(tmp_path).plant(rents)
    unique = {"type": "expect_column_values_to_be_unique", "severity": "critical"}
    suite = {"name": "flats", "expectations": [{**unique, "kwargs": KEY}]}
    (world.pipelines / "rents" / "flats.json").write_text(json.dumps(suite))
    flats = world.sources / "flats.csv"
    lines = flats.read_text().splitlines()
    flats.write_text("\n".join([*lines, *lines[1:4]]))
    told = r"kept     6 of 1,603 rows of the table 'flats' in quarantine: 6 by unique__flat__\w{6};"
    run = ("run", "rents", "--through", "validated_table")
    see = "see ml-assets data quarantine show rents flats"
    assert re.search(f"\n{told} {see}\n", world.cli(*run))
    assert "kept" not in world.cli(*run)
