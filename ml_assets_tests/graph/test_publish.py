"""A step hands over all or nothing, and says so when another run was first."""

from pathlib import Path

import polars as pl
import pytest

from ml_assets.errors import StorageError
from ml_assets.graph.publish import Draft, Work
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets.store.layout import Address
from ml_assets_tests.worlds.opened import pipeline_of

ADDRESS = Address("deliveries", "validated_table", "orders", "2024-01-01")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddedStore:
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "home"))
    return EmbeddedStore(tmp_path / "snapshots")


def keep(store: EmbeddedStore, base: str, *orders: int) -> None:
    with Draft(pipeline_of(store=store), Work(ADDRESS, "quarantine", (), ""), base) as draft:
        draft.keep(ADDRESS.rejected, pl.DataFrame({"order": orders}), ["order"])


def kept(store: EmbeddedStore) -> list[int]:
    return store.scan(store.resolve(), ADDRESS.rejected).collect()["order"].to_list()


def test_rows_that_another_run_kept_meanwhile_are_told_and_not_taken_for_ours(
    store: EmbeddedStore,
) -> None:
    base = store.resolve()
    keep(store, base, 1, 2)
    with pytest.raises(StorageError, match="by another run at the same time"):
        keep(store, base, 3)
    assert kept(store) == [1, 2]
    keep(store, base, 1, 2)  # a retry whose answer was lost
    keep(store, store.resolve(), 3)  # and the next try is the newest
    assert kept(store) == [3]
