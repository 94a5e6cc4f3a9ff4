"""Writers and readers side by side: who comes second sees it, and reads only what has changed."""

from functools import partial
from pathlib import Path

import polars as pl
import pytest

from ml_assets.adapters.resources import StoresResource
from ml_assets.errors import StoreAway
from ml_assets.settings import read_settings
from ml_assets.store.lakefs.store import LakeFsStore
from ml_assets.store.snapshots import Conflict, Published, PublishResult
from ml_assets.store.table_files import write_table
from ml_assets_tests.servers.lakefs import Fault, LakeFSServer
from ml_assets_tests.store.conftest import OpenLakeFs
from ml_assets_tests.store.lakefs.publishing import publish, published
from ml_assets_tests.worlds.opened import pipeline_of


def test_somebody_who_is_first_in_the_last_moment_is_seen(
    lakefs: LakeFSServer, open_lakefs: OpenLakeFs
) -> None:
    """The rival's merge comes after we looked at main, before ours."""
    store, rival = open_lakefs(lakefs), open_lakefs(lakefs)
    taken: list[PublishResult] = []
    for ours, theirs, expected in (
        ({"t/ours": b"1"}, {"t/theirs": b"2"}, Published),
        ({"t/same": b"1"}, {"t/same": b"2"}, Conflict),
    ):
        rivals = partial(publish, rival, theirs, f"rival {len(taken)}")
        lakefs.faults.add(Fault("POST", "/merge/main", then=lambda do=rivals: taken.append(do())))
        assert isinstance(publish(store, ours, f"k{len(taken)}"), expected)
    assert all(isinstance(outcome, Published) for outcome in taken)
    head = store.resolve()
    assert [e.path for e in store.list(head)] == ["t/ours", "t/same", "t/theirs"]
    assert store.read_bytes(head, "t/same") == b"2"


def test_after_a_lost_race_it_waits_for_a_random_time_that_grows(
    lakefs: LakeFSServer, open_lakefs: OpenLakeFs
) -> None:
    rival, waits = open_lakefs(lakefs), list[float]()
    store = LakeFsStore(read_settings().snapshots, pause=waits.append)

    def be_first(left: int) -> None:
        publish(rival, {f"t/{left}": b"1"}, f"rival {left}")
        if left > 1:
            lakefs.faults.add(Fault("POST", "/merge/main", then=partial(be_first, left - 1)))

    lakefs.faults.add(Fault("POST", "/merge/main", then=partial(be_first, 6)))
    assert isinstance(publish(store, {"t/ours": b"1"}), Published)
    assert len(waits) == 6
    assert all(0 <= wait <= 0.1 * 2**number for number, wait in enumerate(waits))
    assert len(set(waits)) == 6


def test_who_looks_again_reads_only_what_has_changed(
    lakefs: LakeFSServer,
    open_lakefs: OpenLakeFs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a sensor does, tick by tick; another user has another store."""
    store, place = open_lakefs(lakefs), pipeline_of()
    write_table(pl.DataFrame({"k": [1]}), tmp_path / "t.parquet", ["k"])
    table = (tmp_path / "t.parquet").read_bytes()
    first = published(store, {"t/table": table, **{f"t/{n}": b"%d" % n for n in range(9)}})

    def look() -> int:
        before = lakefs.faults.count("GET", "/objects")
        seen = StoresResource().open(place).store
        head = StoresResource().open(place).store.resolve()
        assert [seen.read_bytes(head, f"t/{n}") for n in range(1, 9)] == [
            b"%d" % n for n in range(1, 9)
        ]
        assert len(seen.scan(first, "t/table").collect()) == 1
        return lakefs.faults.count("GET", "/objects") - before

    assert look() == 10  # the manifest, eight files, the table
    assert look() == 0
    published(store, {"t/0": b"changed"}, "k2")
    assert look() == 1  # the manifest
    monkeypatch.setenv("LAKEFS_SECRET_ACCESS_KEY", "hunter2hunter2")
    with pytest.raises(StoreAway, match="LAKEFS_SECRET_ACCESS_KEY"):
        StoresResource().open(place).store.resolve()
