"""The rows that are kept back of an hour are found by the hour's own key."""

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

BERLIN = PartitionsSpec(cadence="hourly", start=date(2024, 10, 27), timezone="Europe/Berlin")
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
