"""Delta Lake and Iceberg tables, written by the packages of their own: read at a version."""

import json
import string
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import TypeAdapter, ValidationError

from ml_assets.assets.raw_snapshot.readers.look_cache import Seen
from ml_assets.assets.raw_snapshot.readers.read_source import look, read_source, receipt_of
from ml_assets.assets.raw_snapshot.receipt import receipt_version
from ml_assets.errors import SourceError
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.sources import SourceSpec
from ml_assets_tests.servers.s3 import BUCKET, S3Server

SOURCE: TypeAdapter[Any] = TypeAdapter(SourceSpec)
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
DAYS = [
    PartitionWindow(f"2024-01-{1 + n:02}", FIRST + timedelta(n), FIRST + timedelta(n + 1))
    for n in range(3)
]
COLUMNS = {"id": "int64", "at": "datetime", "late": "float64", "carrier": "string"}


def rows(ids: range, zone: str | None = "UTC", late: float = 1.0) -> pa.Table:
    """Three rows a day."""
    at = [FIRST.replace(tzinfo=None) + timedelta(hours=8 * n) for n in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "at": pa.array(at, pa.timestamp("us", zone)),
            "late": pa.array([late] * len(ids), pa.float64()),
            "carrier": pa.array(["UA"] * len(ids), pa.string()),
        }
    )


class Lake:
    """A table, as a team has one."""

    def __init__(self, declared: dict[str, Any], append: Callable[[pa.Table], object]) -> None:
        self.declared = {**declared, "columns": COLUMNS, "key": ["id"], "watermark": "at"}
        self.append = append

    def source(self, **changes: Any) -> Any:
        return SOURCE.validate_python({**self.declared, **changes})


@pytest.fixture(params=["delta", "iceberg"])
def lake(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lake]:
    yield made(request.param, tmp_path, monkeypatch)


def made(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, zone: str | None = "UTC"
) -> Lake:
    if kind == "delta":
        delta = pytest.importorskip("deltalake", reason="the extra 'delta' is not installed")
        place = folder / "lake" / "flights"

        def append(table: pa.Table) -> None:
            delta.write_deltalake(place, table, mode="append")

        return Lake({"kind": "delta", "path": "lake/flights"}, append)
    pytest.importorskip("pyiceberg", reason="the extra 'iceberg' is not installed")
    from pyiceberg.catalog import load_catalog

    uri = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    for name, value in uri.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    catalog = load_catalog("lake", **uri)
    catalog.create_namespace("air")
    table = catalog.create_table("air.flights", schema=rows(range(0), zone).schema)
    declared = {"kind": "iceberg", "catalog": "lake", "table": "air.flights"}
    return Lake(declared, lambda new: table.append(new))


def no_url(connection: str) -> str:
    raise AssertionError(f"no database {connection} is read")


def test_a_partition_is_the_range_of_its_watermark(lake: Lake, tmp_path: Path) -> None:
    lake.append(rows(range(5)))
    lake.append(rows(range(5, 9)))
    found = read_source("flights", lake.source(), tmp_path, no_url, DAYS[1])
    assert sorted(found.frame["id"]) == [3, 4, 5]
    assert found.receipt["rows"] == 3 and "flights" in found.receipt["source"]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_times_without_a_zone_are_utc(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = made(kind, tmp_path, monkeypatch, zone=None)
    lake.append(rows(range(9), zone=None))
    found = read_source("flights", lake.source(), tmp_path, no_url, DAYS[2])
    assert found.frame["at"].to_list() == [FIRST + timedelta(days=2, hours=8 * n) for n in range(3)]


def test_a_delta_table_whose_rows_are_deleted_by_vectors_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vector deletes the second of nine rows, as Spark writes it: nobody may read nine."""
    roaring = pytest.importorskip("pyroaring", reason="the extra 'iceberg' is not installed")
    lake = made("delta", tmp_path, monkeypatch)
    lake.append(rows(range(9)))
    log = tmp_path / "lake" / "flights" / "_delta_log"
    (first,) = log.glob("*.json")
    (add,) = (
        line["add"] for line in map(json.loads, first.read_text().splitlines()) if "add" in line
    )
    deleted = roaring.BitMap([1]).serialize()
    content = struct.pack("<iqi", 1681511377, 1, 0) + deleted
    content += bytes(-len(content) % 4)
    at = {"storageType": "i", "pathOrInlineDv": z85(content), "sizeInBytes": len(content)}
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    actions = [
        {"protocol": {**versions, **features}},
        {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": {**add, "deletionVector": {**at, "cardinality": 1}}},
    ]
    second = log / f"{1:020}.json"
    second.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    with pytest.raises(SourceError, match=r"cannot be read: .*deletionVectors"):
        read_source("flights", lake.source(), tmp_path, no_url, DAYS[1])
    first_version = lake.source(version=0)
    assert read_source("flights", first_version, tmp_path, no_url, DAYS[1]).receipt["rows"] == 3


def z85(content: bytes) -> str:
    """ZeroMQ's base 85, in which the log of a table holds small vectors."""
    digits = string.digits + string.ascii_letters + ".-:+=^!/*?&<>()[]{}@%$#"
    numbers = struct.unpack(f">{len(content) // 4}I", content)
    return "".join(digits[n // 85**place % 85] for n in numbers for place in (4, 3, 2, 1, 0))


def test_the_receipt_names_the_version_and_only_new_rows_make_a_partition_another_one(
    lake: Lake, tmp_path: Path
) -> None:
    def version(day: PartitionWindow) -> tuple[int, str]:
        receipt = receipt_of("flights", lake.source(), tmp_path, no_url, day)
        return receipt["version"], receipt_version("flights", day.key, receipt).version

    lake.append(rows(range(6)))
    before = [version(day) for day in DAYS[:2]]
    lake.append(rows(range(6, 9)))
    after = [version(day) for day in DAYS[:2]]
    assert [one for _, one in before] == [one for _, one in after], "no row of theirs came"
    assert before[0][0] != after[0][0], "but the table is at another version"
    lake.append(rows(range(3, 4), late=9.0))
    assert version(DAYS[0])[1] == before[0][1] and version(DAYS[1])[1] != before[1][1]


def test_an_older_version_is_read_again_as_it_was(lake: Lake, tmp_path: Path) -> None:
    lake.append(rows(range(3)))
    whole = {"partitioned": False, "watermark": None}
    first = read_source("flights", lake.source(**whole), tmp_path, no_url, None)
    lake.append(rows(range(3, 6)))
    then = lake.source(**whole, version=first.receipt["version"])
    assert read_source("flights", then, tmp_path, no_url, None).receipt == first.receipt
    assert len(read_source("flights", lake.source(**whole), tmp_path, no_url, None).frame) == 6
    said = (
        "no version 99 that can be read; its newest is 1"
        if lake.declared["kind"] == "delta"
        else "99"
    )
    with pytest.raises(SourceError, match=said):
        read_source("flights", lake.source(**whole, version=99), tmp_path, no_url, None)


def test_a_look_tells_what_is_there_and_reads_again_what_changed(
    lake: Lake, tmp_path: Path
) -> None:
    seen = Seen(tmp_path / "seen.db")

    def looked() -> dict[str | None, Any]:
        found = look("flights", lake.source(), tmp_path, no_url, DAYS, seen)
        return {key: found.receipt(key) for key in found.keys}

    lake.append(rows(range(3)))
    first = looked()
    assert list(first) == [DAYS[0].key]
    lake.append(rows(range(3, 6)))
    second = looked()
    assert list(second) == [DAYS[0].key, DAYS[1].key]
    assert second[DAYS[0].key] == first[DAYS[0].key], "its files are the same: it was not read"
    read = receipt_of("flights", lake.source(), tmp_path, no_url, DAYS[1])
    assert second[DAYS[1].key] == read


def test_a_column_of_another_type_is_read_again(lake: Lake, tmp_path: Path) -> None:
    seen = Seen(tmp_path / "seen.db")
    lake.append(rows(range(3)))
    for columns in (COLUMNS, COLUMNS | {"id": "float64"}, COLUMNS):
        source = lake.source(columns=columns)
        looked = look("flights", source, tmp_path, no_url, DAYS, seen).receipt(DAYS[0].key)
        assert looked == receipt_of("flights", source, tmp_path, no_url, DAYS[0])


@pytest.mark.parametrize("spoil", [Path.unlink, lambda file: file.write_bytes(b"PAR1 cut")])
def test_a_file_that_is_gone_or_damaged_refuses_its_own_partition_only(
    lake: Lake, tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    lake.append(rows(range(3)))
    others = set(tmp_path.rglob("*.parquet"))
    lake.append(rows(range(3, 6)))
    (file,) = set(tmp_path.rglob("*.parquet")) - others
    lake.append(rows(range(6, 9)))
    spoil(file)
    with pytest.raises(SourceError, match=r"\[2024-01-02\]: a file of its version .* «.*»"):
        read_source("flights", lake.source(), tmp_path, no_url, DAYS[1])
    for seen in (None, Seen(tmp_path / "seen.db")):
        found = look("flights", lake.source(), tmp_path, no_url, DAYS, seen)
        assert found.keys == tuple(day.key for day in DAYS)
        with pytest.raises(SourceError, match=r"\[2024-01-02\]: a file of its version"):
            found.receipt(DAYS[1].key)
        for day in (DAYS[0], DAYS[2]):
            read = receipt_of("flights", lake.source(), tmp_path, no_url, day)
            assert found.receipt(day.key) == read


def test_an_older_version_is_read_by_the_watermark_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = made("iceberg", tmp_path, monkeypatch)
    from pyiceberg.catalog import load_catalog

    place = f"sqlite:///{tmp_path}/catalog.db"
    lake.append(rows(range(6)))
    first = read_source("flights", lake.source(), tmp_path, no_url, DAYS[1])
    pinned = lake.source(version=first.receipt["version"])
    table = load_catalog("lake", uri=place).load_table("air.flights")
    with table.update_schema() as change:
        change.rename_column("at", "seen_at")
    again = read_source("flights", pinned, tmp_path, no_url, DAYS[1])
    assert again.receipt == first.receipt
    with table.update_schema() as change:
        change.delete_column("seen_at")
    with pytest.raises(SourceError, match=r"watermark 'at' .* was removed after its version"):
        read_source("flights", pinned, tmp_path, no_url, DAYS[1])


def test_what_is_wrong_is_told_with_a_remedy(lake: Lake, tmp_path: Path) -> None:
    lake.append(rows(range(3)))
    with pytest.raises(SourceError, match="has no rows"):
        read_source("flights", lake.source(), tmp_path, no_url, DAYS[2])
    other = {**COLUMNS, "delay": "float64"}
    with pytest.raises(SourceError, match="delay"):
        read_source("flights", lake.source(columns=other), tmp_path, no_url, DAYS[0])
    lost = rows(range(3, 4)).set_column(1, "at", pa.array([None], pa.timestamp("us", "UTC")))
    lake.append(lost)
    with pytest.raises(SourceError, match="1 row without 'at'"):
        read_source("flights", lake.source(), tmp_path, no_url, DAYS[0])
    without = lake.source(ignore_null_watermark=True)
    assert len(read_source("flights", without, tmp_path, no_url, DAYS[0]).frame) == 3
    elsewhere = {"path": "lake/no"} if lake.declared["kind"] == "delta" else {"table": "air.no"}
    with pytest.raises(SourceError, match=r"defs\.yaml"):
        read_source("flights", lake.source(**elsewhere), tmp_path, no_url, DAYS[0])


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_a_delta_table_on_s3_is_read_by_the_address_of_the_environment(
    tmp_path: Path, bucket: S3Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    delta = pytest.importorskip("deltalake", reason="the extra 'delta' is not installed")
    uri = f"s3://{BUCKET}/lake/flights"
    options = {"AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "conditional_put": "etag"}
    delta.write_deltalake(uri, rows(range(6)), storage_options=options)
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv(name, bucket.endpoint)
    source = Lake({"kind": "delta", "path": uri}, lambda _: None).source()
    found = read_source("flights", source, tmp_path, no_url, DAYS[1])
    assert sorted(found.frame["id"]) == [3, 4, 5]


def test_a_lake_needs_no_pattern_and_a_partition_its_watermark() -> None:
    plain = {"kind": "delta", "columns": COLUMNS, "key": ["id"]}
    with pytest.raises(ValidationError, match="needs 'watermark'"):
        SOURCE.validate_python({**plain, "path": "lake/flights"})
    with pytest.raises(ValidationError, match="the folder of one table"):
        SOURCE.validate_python({**plain, "path": "lake/{partition}", "watermark": "at"})


def test_a_lake_without_its_package_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    source = Lake({"kind": "delta", "path": "lake"}, lambda _: None).source()
    with pytest.raises(SourceError, match=r"'\.\[delta\]'"):
        read_source("flights", source, tmp_path, no_url, DAYS[0])
