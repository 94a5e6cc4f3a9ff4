"""The online store: one contract for a file and for a Redis server."""

import math
import struct
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ml_assets.errors import SpecError, StorageError, StoreAway
from ml_assets.extras.online.features import Features, serve, unlike_batch
from ml_assets.extras.online.open import open_online
from ml_assets.extras.online.store import (
    OnlineStore,
    Served,
    column_types,
    decode,
    encode,
    entity_key,
    parse_entity,
    typed_entity,
)
from ml_assets_tests.servers.redis import PASSWORD, redis_server

Open = Callable[[], OnlineStore]
PIPELINE = "parcels"


@pytest.fixture(scope="module", params=["a file", "a Redis server"])
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Open]:
    """Opens one more client of the same store."""
    folder = tmp_path_factory.mktemp("online")
    if request.param == "a file":
        yield lambda: open_online(str(folder / "online.db"))
        return
    with redis_server(folder) as url:
        yield lambda: open_online(url)


def version_of(number: int, rows: int = 20) -> pl.DataFrame:
    """A version whose every row says which one it is of."""
    return pl.DataFrame(
        {"depot": [f"d{n}" for n in range(rows)], "version": [float(number)] * rows}
    )


def put(store: OnlineStore, rows: pl.DataFrame, pipeline: str = PIPELINE) -> Served:
    return serve(store, pipeline, f"{hash(rows.write_json()):x}", ["depot"], rows)


def look(store: OnlineStore, *depots: str, pipeline: str = PIPELINE) -> list[dict[str, Any] | None]:
    found = store.get(pipeline, [entity_key([depot]) for depot in depots])
    assert found is not None
    return [decode(row, found.served.types) if row else None for row in found.rows]


def test_before_anything_is_served_there_is_nothing(opened: Open) -> None:
    assert opened().current("nobody") is None
    assert opened().get("nobody", ['["d1"]']) is None


def test_a_version_is_seen_by_others_and_replaced_whole_by_the_next(opened: Open) -> None:
    put(opened(), version_of(1, rows=30))
    reader = opened()
    assert look(reader, "d29", "d0") == [
        {"depot": "d29", "version": 1.0},
        {"depot": "d0", "version": 1.0},
    ]
    served = put(opened(), version_of(2, rows=10))
    assert reader.current(PIPELINE) == served
    assert look(reader, "d29", "d0") == [None, {"depot": "d0", "version": 2.0}]


def test_loading_again_what_is_served_changes_nothing(opened: Open) -> None:
    first = put(opened(), version_of(3))
    assert put(opened(), version_of(3)) == first
    assert look(opened(), "d7") == [{"depot": "d7", "version": 3.0}]


def test_a_load_that_breaks_off_leaves_what_was_served(opened: Open) -> None:
    put(opened(), version_of(4))
    types = {"depot": "String", "version": "Float64"}

    def half() -> Iterator[tuple[str, str]]:
        yield '["d0"]', '["d0",5.0]'
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened().serve(Served(PIPELINE, "5", ("depot",), types, 2), half())
    assert look(opened(), "d0", "d19") == [
        {"depot": "d0", "version": 4.0},
        {"depot": "d19", "version": 4.0},
    ]
    put(opened(), version_of(6))
    assert look(opened(), "d0") == [{"depot": "d0", "version": 6.0}]


def test_pipelines_do_not_touch_each_other(opened: Open) -> None:
    put(opened(), version_of(1), "one")
    put(opened(), version_of(2), "other")
    put(opened(), version_of(3), "one")
    assert look(opened(), "d1", pipeline="other") == [{"depot": "d1", "version": 2.0}]


def test_who_reads_while_versions_change_never_sees_two_at_once(opened: Open) -> None:
    put(opened(), version_of(0))
    done = threading.Event()
    mixed: list[set[float]] = []

    def read() -> None:
        reader = opened()
        while not done.is_set():
            rows = look(reader, "d0", "d5", "d19")
            seen = {row["version"] for row in rows if row} | ({math.nan} if None in rows else set())
            if len(seen) != 1:
                mixed.append(seen)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    writer = opened()
    for number in range(1, 15):
        put(writer, version_of(number))
    done.set()
    for reader in readers:
        reader.join()
    assert mixed == []


VALUES = st.fixed_dictionaries(
    {
        "count": st.none() | st.integers(-(2**63), 2**63 - 1),
        "share": st.none() | st.floats(),
        "name": st.none() | st.text(st.characters(exclude_categories=("Cs",))),
        "open": st.none() | st.booleans(),
        "day": st.none() | st.dates(date(1, 1, 1), date(9999, 12, 31)),
        "at": st.none()
        | st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(  # noqa: DTZ001
            lambda naive: naive.replace(tzinfo=UTC)
        ),
    }
)
SCHEMA = {
    "depot": pl.String(),
    "count": pl.Int64(),
    "share": pl.Float64(),
    "name": pl.String(),
    "open": pl.Boolean(),
    "day": pl.Date(),
    "at": pl.Datetime("us", "UTC"),
}


@settings(max_examples=40)
@given(rows=st.lists(VALUES, min_size=1, max_size=8))
def test_a_look_up_gives_the_rows_of_the_batch_bit_for_bit(opened: Open, rows: list[dict]) -> None:
    named = [{"depot": f"d{number}", **row} for number, row in enumerate(rows)]
    batch = pl.DataFrame(named, schema=SCHEMA)
    store = opened()
    served = serve(store, PIPELINE, "v", ["depot"], batch)
    found = look(store, *batch["depot"])
    assert [bits(row) for row in found] == [bits(row) for row in batch.iter_rows(named=True)]
    assert unlike_batch(store, served, batch) == ""


def bits(row: dict[str, Any] | None) -> list[Any]:
    assert row is not None
    return [_bits(value) for value in row.values()]


def _bits(value: Any) -> Any:
    if isinstance(value, float) and not math.isnan(value):
        return struct.pack("d", value)
    return value.isoformat() if isinstance(value, date) else repr(value)


def test_a_row_that_was_changed_behind_our_back_is_found(opened: Open) -> None:
    store, batch = opened(), version_of(1)
    served = put(store, batch)
    put(store, version_of(2))
    store.serve(served, encode(batch.with_columns(version=pl.lit(1.5)), ["depot"]))
    assert "d3" in unlike_batch(store, served, batch.filter(depot="d3"))


def test_an_entity_is_read_from_text_as_it_is_typed() -> None:
    batch = pl.DataFrame({"depot": [7], "at": [datetime(2024, 1, 1, tzinfo=UTC)], "x": [1.0]})
    served = Served(PIPELINE, "v", ("depot", "at"), column_types(batch), 1)
    given = {"at": "2024-01-01T00:00:00Z", "depot": "7"}
    assert entity_key(parse_entity(served, given)) == next(encode(batch, ["depot", "at"]))[0]
    with pytest.raises(SpecError, match="depot is 'seven'; a value of type Int64"):
        parse_entity(served, {**given, "depot": "seven"})
    with pytest.raises(SpecError, match="looks features up by depot, at; given are depot"):
        parse_entity(served, {"depot": "7"})


def test_a_time_without_a_zone_is_of_utc_wherever_the_server_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = Served(PIPELINE, "v", ("at",), {"at": "Datetime"}, 1)
    six = [datetime(2024, 5, 1, 6, tzinfo=UTC)]
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert parse_entity(served, {"at": "2024-05-01T06:00"}) == six
        assert parse_entity(served, {"at": "2024-05-01T08:00+02:00"}) == six
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("value", ["7", 7.0, True, [7]])
def test_an_entity_of_another_type_is_no_entity_without_features(value: object) -> None:
    types = {"depot": "Int64", "share": "Float64", "at": "Datetime"}
    typed_entity(types, {"depot": 7, "share": 1, "at": datetime(2024, 1, 1, tzinfo=UTC)})
    typed_entity(types, {"depot": None})
    with pytest.raises(SpecError, match=r"depot is .*; a value of type Int64 is expected"):
        typed_entity(types, {"depot": value})


def test_who_looks_up_by_another_type_is_told(opened: Open) -> None:
    store = opened()
    put(store, version_of(1))
    features = Features(PIPELINE, ("depot",), store)
    assert features.look_up({"depot": "unknown"}) is None
    with pytest.raises(SpecError, match="depot is 3; a value of type String is expected"):
        features.look_up_many([{"depot": "d3"}, {"depot": 3}])


def test_json_finds_what_it_has_no_type_for(opened: Open) -> None:
    """Its one kind of number is a fraction, too, and a day is text."""
    store, at = opened(), datetime(2024, 5, 1, 6, tzinfo=UTC)
    rows = {"share": [7.0, 8.5], "day": [date(2024, 5, 1)] * 2, "at": [at] * 2, "load": [1, 2]}
    entity = ("share", "day", "at")
    frame = pl.DataFrame(rows)
    serve(store, "typed", "v", entity, frame)
    features = Features("typed", entity, store)
    asked = {"share": 7, "day": "2024-05-01", "at": "2024-05-01T08:00:00+02:00"}
    found = features.look_up_many([asked, {**asked, "share": 9}])
    assert [row and row["load"] for row in found] == [1, None]
    with pytest.raises(SpecError, match="day is 'today'; a value of type Date is expected"):
        features.look_up({**asked, "day": "today"})


def test_a_type_that_cannot_be_looked_up_is_refused_by_name() -> None:
    with pytest.raises(SpecError, match="'tags' of the online features is List"):
        column_types(pl.DataFrame({"tags": [["a"]]}))


def test_redis_keeps_two_versions_at_most(tmp_path: Path) -> None:
    from redis import Redis

    with redis_server(tmp_path) as url:
        store = open_online(url)
        for number in range(5):
            put(store, version_of(number))
        rows = Redis.from_url(url).keys("*:rows:*")
        assert len(rows) == 2


def test_a_server_that_is_gone_is_named_and_its_password_is_not(tmp_path: Path) -> None:
    with redis_server(tmp_path) as url:
        store = open_online(url)
        put(store, version_of(1))
    with pytest.raises(StoreAway, match=r"127\.0\.0\.1:\d+ does not answer") as told:
        store.current(PIPELINE)
    assert PASSWORD not in str(told.value)
    assert told.value.__cause__ is None


def test_a_wrong_password_says_what_to_check(tmp_path: Path) -> None:
    with redis_server(tmp_path) as url, pytest.raises(StoreAway, match="its password"):
        open_online(url.replace(PASSWORD, "guessed")).current(PIPELINE)


def test_a_file_that_is_no_store_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "online.db"
    file.write_text("my thesis, whole and long enough to be no header of any database at all")
    with pytest.raises(StoreAway, match="cannot be used"):
        open_online(str(file)).current(PIPELINE)
    assert file.read_text().startswith("my thesis")


@pytest.mark.parametrize("text", ["{nonsense", "[1]", "{}", "3"])
def test_what_somebody_else_wrote_there_is_one_sentence(text: str) -> None:
    for read in (Served.of_json, lambda said: decode(said, {"a": "Int64", "at": "Date"})):
        with pytest.raises(StorageError, match="What the online store holds cannot be read"):
            read(text)
