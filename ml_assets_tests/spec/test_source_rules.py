"""Every rule of a source has a planted fault here, and what is said of it."""

import pytest
from pydantic import TypeAdapter

from ml_assets.spec.paths import inside
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.sources import SourceSpec
from ml_assets_tests.spec.specs import EVENTS, FILES, REFERENCES, SPEC, SQL, Raw, changed, refusal


@pytest.mark.parametrize(
    "place", [{"kind": "delta", "path": "s3://lake/stock"}, {"kind": "iceberg", "catalog": "lake"}]
)
def test_a_lakehouse_table_is_parted_by_its_watermark(place: Raw) -> None:
    table = {k: v for k, v in SQL.items() if k not in ("kind", "connection", "table")} | place
    if place["kind"] == "iceberg":
        table["table"] = "shop.stock"
    spec = PipelineSpec.model_validate(changed(SPEC, {"sources.stock": table}))
    assert spec.sources["stock"].partitioned


@pytest.mark.parametrize(
    ("raw", "path", "value", "said"),
    [
        (FILES, "kind", "ftp", "'files', 'events', 'sql'"),
        (FILES, "columns", {}, "at least 1 item"),
        (FILES, "columns.order", "int32", "'int64'"),
        (FILES, "columns", {"order": "int64", "*": "int64"}, "['*'] are patterns of several"),
        (FILES, "key", [], "at least 1 item"),
        (FILES, "key", ["number"], "columns ['number'] are named here but not declared"),
        (FILES, "known_at", "seen", "columns ['seen'] are named here but not declared"),
        (FILES, "known_at", "shop", "'shop' is declared as string: it must be a 'datetime'"),
        (FILES, "contract", "../other.json", "stays inside its folder"),
        (FILES, "contract", "/etc/contract.json", "stays inside its folder"),
        (FILES, "contract", " ", "stays inside its folder"),
        (FILES, "path", "../{partition}.csv", "stays inside its folder"),
        (FILES, "path", "orders.csv", "or set partitioned: false, for one table"),
        (FILES, "partitioned", False, "holds {partition} but partitioned is false"),
        (FILES, "format", "xlsx", "'csv', 'parquet', 'jsonl' or 'binary'"),
        (FILES, "watermark", "placed", "Extra inputs are not permitted"),
        (FILES, "path", "s3://bucket", "names only a bucket"),
        (FILES, "path", "s3://*/{partition}.csv", "cannot contain a pattern"),
        (FILES, "path", "s3://bucket/../{partition}.csv", "stays inside its folder"),
        (FILES, "path", "{shop}/{partition}.csv", "{shop}, which is neither {partition} nor"),
        (FILES, "path", "{partition}/{version}.csv", "use only one of them"),
        (FILES, "path", "{partition}/a**.csv", "** may be used once, between two slashes"),
        (FILES, "path", "{partition}/**", "** may be used once, between two slashes"),
        (FILES, "path", "{partition}/[ab].csv", "wildcards are *, ? and **"),
        (FILES, "path", "a//{partition}.csv", "has an empty part"),
        (FILES, "format", "binary", "of a binary source are neither fields of its path nor"),
        ({**FILES, "format": "parquet"}, "path", "{partition}.gz", "has its own compression"),
        (REFERENCES, "columns", {"bytes": "int64"}, "declare the column path: string"),
        (REFERENCES, "columns.bytes", "string", "of a binary source are neither"),
        (EVENTS, "offset", "order", "declared in 'columns' as well"),
        (EVENTS, "path", "{version}.jsonl", "events come in partitions"),
        (EVENTS, "known_at", ..., "Field required"),
        (EVENTS, "known_at", "placed", "not declared"),
        (EVENTS, "path", "/events/{partition}.jsonl", "stays inside its folder"),
        (EVENTS, "path", "events.jsonl", "must hold {partition}"),
        (EVENTS, "partitioned", False, "partitioned is false"),
        ({**SQL, "partitioned": False}, "settled", "30 days", "settled is the age of a partition"),
        (SQL, "connection", "postgresql://me:secret@host/db", "pattern"),
        (SQL, "connection", "warehouse", "pattern"),
        (SQL, "table", "stock; drop table stock", "pattern"),
        (SQL, "watermark", ..., "needs 'watermark'"),
        (SQL, "watermark", "shop", "must be a declared 'datetime' column"),
        (
            {**SQL, "partitioned": False},
            "ignore_null_watermark",
            True,
            "ignore_null_watermark is for partitions",
        ),
        (SQL, "watermark", "changed", "must be a declared 'datetime' column"),
    ],
)
def test_a_wrong_source_is_refused_with_its_reason(
    raw: Raw, path: str, value: object, said: str
) -> None:
    assert said in refusal(changed(raw, {path: value}), SourceSpec)


def test_a_reference_table_needs_no_partition() -> None:
    for raw in (
        changed(FILES, {"partitioned": False, "path": "planes.csv"}),
        changed(SQL, {"partitioned": False, "watermark": ...}),
    ):
        assert TypeAdapter(SourceSpec).validate_python(raw).partitioned is False


@pytest.mark.parametrize("path", ["a.csv", "a/b/{partition}.csv", "a..b/c"])
def test_a_path_below_its_folder_is_kept_as_it_is(path: str) -> None:
    assert inside(path) == path
