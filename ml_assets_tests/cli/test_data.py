"""ml-assets data on both stores: states by names that people say, never a hash that they must."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ml_assets.spec.base import canonical_json, digest_of
from ml_assets.spec.records import StageRecord
from ml_assets.store.layout import Address
from ml_assets.store.open import open_snapshots
from ml_assets.store.snapshots import Published, SnapshotStore
from ml_assets.store.table_files import write_table
from ml_assets_tests.conftest import Cli
from ml_assets_tests.servers.lakefs import LakeFSServer, lakefs_server
from ml_assets_tests.worlds.lakefs import new_repository

# to come: a lakeFS server dates the making of a repository by its own clock
DAYS = [datetime(2126, 11, day, 12, tzinfo=UTC) for day in (16, 17, 18)]
WEEK = "2126-W46"


@pytest.fixture(scope="module")
def server() -> Iterator[LakeFSServer]:
    with lakefs_server() as server:
        yield server


@pytest.fixture(params=["embedded", "lakefs"])
def said(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
) -> Callable[..., str]:
    """Runs the command, holds it to an exit code; three states were published, a day each."""
    home = tmp_path / "state"
    environment = {"ML_ASSETS_HOME": str(home), "ML_ASSETS_SNAPSHOTS": str(tmp_path / "store")}
    if request.param == "lakefs":
        environment = new_repository(request.getfixturevalue("server"), home)
    for name, value in {**environment, "DAGSTER_HOME": ""}.items():
        monkeypatch.setenv(name, value)
    for rows, day in zip((3, 3, 5), DAYS, strict=True):
        publish(environment["ML_ASSETS_SNAPSHOTS"], tmp_path, rows, day)

    def call(*arguments: str, code: int = 0) -> str:
        return "".join(cli("data", *arguments, code=code))

    return call


def publish(location: str, folder: Path, rows: int, day: datetime) -> None:
    """A week of ships; and what is made from them, which is new on the second day."""
    store: SnapshotStore = open_snapshots(location, lambda: day)
    with store.open(store.resolve(), f"work of {day}") as workspace:
        ships = ("validated_table", "ships", WEEK, rows)
        for stage, source, partition, size in (ships, ("feature_set", None, None, 7)):
            if stage == "feature_set" and day == DAYS[0]:
                continue
            address = Address("harbour", stage, source, partition)
            write_table(pl.DataFrame({"k": range(size)}), folder / "t.parquet", ["k"])
            entry = workspace.put(address.table, folder / "t.parquet")
            record = StageRecord(
                key=address.key,
                partition=partition,
                run_key=digest_of([stage, str(day)]),
                code_version="1",
                data_version=entry.digest,
                rows=size,
                inputs=(),
                run="r",
                time=day,
            )
            workspace.put_bytes(address.record, canonical_json(record))
        workspace.commit(f"harbour of {day:%A}", {})
        assert isinstance(workspace.publish(), Published)


on_one_store = pytest.mark.parametrize("said", ["embedded"], indirect=True)
"""For what is decided before a store is asked, or by what each store is held to elsewhere."""


def document(text: str) -> dict[str, Any]:
    found = json.loads(text)
    assert found["schema"] == 1
    return found


def test_list_tells_the_tables_of_now_or_then_and_the_states_by_name(
    said: Callable[..., str],
) -> None:
    said("tag", "before-the-storm", "--at", "2126-11-17")
    now = said("list")
    assert "harbour/validated_table/ships" in now and "5 rows" in now
    assert "2126-11-18 12:00  main" in now and f"harbour of {DAYS[2]:%A}" in now
    assert "2126-11-17 12:00  before-the-storm" in now
    for name in ("before-the-storm", "main~1", "2126-11-17"):
        then = document(said("list", "harbour/validated_table", "--at", name, "--json"))
        (ships,) = then["tables"]
        assert (ships["rows"], ships["partition"]) == (3, WEEK)
        assert ships["bytes"] > 0
    assert "there is no such table yet" in said("list", "harbour/feature_set", "--at", "main~2")


@on_one_store
def test_fewer_than_no_states_are_not_listed(said: Callable[..., str]) -> None:
    assert "'-1' is not a number from 0 up" in said("list", "--last", "-1", code=2)


def test_diff_names_what_changed_with_its_rows_and_nothing_that_did_not(
    said: Callable[..., str],
) -> None:
    lines = said("diff", "main~2").splitlines()
    assert [line.split() for line in lines] == [
        ["added", "harbour/feature_set", "7", "rows"],
        ["changed", "harbour/validated_table/ships", f"[{WEEK}]", "3", "->", "5", "rows"],
    ]
    back = document(said("diff", "main", "main~2", "--json"))["differences"]
    assert [(d["kind"], d["rows_before"], d["rows_after"]) for d in back] == [
        ("removed", 7, None),
        ("changed", 5, 3),
    ]
    again = document(said("diff", "2126-11-16", "2126-11-17", "--json"))["differences"]
    assert [d["key"] for d in again] == ["harbour/feature_set"], "made again, and equal"
    assert "hold the same" in said("diff", "main")


@on_one_store
def test_a_name_is_given_once_and_for_good(said: Callable[..., str]) -> None:
    assert "tuesday is the state" in said("tag", "tuesday", "--at", "main~1")
    assert said("tag", "tuesday", "--at", "2126-11-17") == said("tag", "tuesday", "--at", "tuesday")
    assert "A tag never moves" in said("tag", "tuesday", code=1)
    listed = document(said("list", "--json"))["states"]
    assert [state["names"] for state in listed][:2] == [["main"], ["tuesday"]]


@on_one_store
def test_a_name_that_could_be_taken_for_another_is_refused(said: Callable[..., str]) -> None:
    for name in (
        *("main", "2126-11-17", "abc123", "harbour-release-3"),
        *("../x", "a/b", "", "x..y", "x.lock"),
    ):
        assert "cannot be the name of a state" in said("tag", "--", name, code=1), name


@on_one_store
def test_a_name_of_nothing_is_told_with_what_a_name_is(said: Callable[..., str]) -> None:
    said("tag", "tuesday", "--at", "main~1")
    for name in ("teusday", "main~99", "1969-01-01", "2126-13-45", "ffffff"):
        told = said("diff", name, code=1)
        assert f"{name!r} is not the name of a state" in told and "a day such as" in told
        assert ("Did you mean 'tuesday'?" in told) == (name == "teusday")


@on_one_store
def test_a_commit_is_found_by_its_beginning(said: Callable[..., str]) -> None:
    whole = document(said("list", "--at", "main~1", "--json"))["commit"]
    assert document(said("list", "--at", whole[:8], "--json"))["commit"] == whole


def test_checkout_writes_the_tables_of_then_and_nothing_over_anything(
    said: Callable[..., str], tmp_path: Path
) -> None:
    target = tmp_path / "deep" / "then"
    assert "4 files of 2126-11-17" in said("checkout", "2126-11-17", "--into", str(target))
    ships = target / "tables" / "harbour" / "validated_table" / "ships" / WEEK / "data.parquet"
    assert len(pl.read_parquet(ships)) == 3
    told = json.loads((target / "state.json").read_text())
    assert len(told["files"]) == 4 and len(told["commit"]) == 64
    assert "is not empty" in said("checkout", "main", "--into", str(target), code=1)
    assert len(pl.read_parquet(ships)) == 3
    only = tmp_path / "only"
    assert "2 files" in said("checkout", "main", "harbour/feature_set", "--into", str(only))
    assert not (only / "tables" / "harbour" / "validated_table").exists()
    missing = said("checkout", "main", "lighthouse", "--into", str(tmp_path / "x"), code=1)
    assert "holds no tables of lighthouse" in missing
    below = said("checkout", "main", "--into", str(target / "state.json" / "x"), code=1)
    assert "x cannot be a folder: a file is in its path" in below
    assert sorted(p.name for p in (tmp_path / "deep").iterdir()) == ["then"], "no scratch stays"
