"""Files are read as declared, or refused with the file, line, column and remedy."""

import io
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ml_assets.assets.raw_snapshot.readers.read_source import look, read_source, receipt_of
from ml_assets.errors import SourceError
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.sources import EventsSource, FilesSource
from ml_assets_tests.assets.raw_snapshot.delivering import files, no_sql, stream, weeks_from

DECLARED = {
    "id": "int64",
    "amount": "float64",
    "note": "string",
    "paid": "boolean",
    "day": "date",
    "at": "datetime",
}
CSV = """id,amount,note,paid,day,at
1,1.5,first,true,2013-01-31,2013-01-31T10:00:00Z
2,,"two
lines",FALSE,2013-02-01,2013-01-31 10:00:00.25+02:00
"""
ROWS = [
    (1, 1.5, "first", True, date(2013, 1, 31), datetime(2013, 1, 31, 10, tzinfo=UTC)),
    (2, None, "two\nlines", False, date(2013, 2, 1), datetime(2013, 1, 31, 8, 0, 0, 250000, UTC)),
]
WEEKS = weeks_from(datetime(2013, 1, 7, tzinfo=UTC))
csv_source = partial(files, path="landing/{partition}.csv", columns=DECLARED, key=["id"])


def events_source(**columns: str) -> EventsSource:
    columns = {"at": "datetime", **columns}
    return stream(path="landing/{partition}.jsonl", columns=columns, key=["at"], offset=None)


def land(root: Path, content: str | bytes, name: str = "2013-01-07.csv") -> None:
    (root / "landing").mkdir(parents=True, exist_ok=True)
    content = content.encode() if isinstance(content, str) else content
    (root / "landing" / name).write_bytes(content)


def read(root: Path, source: FilesSource | EventsSource) -> pl.DataFrame:
    return read_source("orders", source, root, no_sql, WEEKS[0]).frame


def refusal(root: Path, source: FilesSource | EventsSource) -> str:
    with pytest.raises(SourceError) as caught:
        read(root, source)
    return str(caught.value)


def test_csv_is_typed_as_declared_whatever_the_order_of_its_columns(tmp_path: Path):
    land(tmp_path, CSV)
    assert read(tmp_path, csv_source()).rows() == ROWS
    backwards = dict(reversed(DECLARED.items()))
    assert read(tmp_path, csv_source(columns=backwards)).rows() == [row[::-1] for row in ROWS]


def test_a_byte_order_mark_and_windows_line_ends_change_nothing(tmp_path: Path):
    land(tmp_path, b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").encode())
    frame = read(tmp_path, csv_source())
    assert frame.drop("note").rows() == [(*r[:2], *r[3:]) for r in ROWS]


def test_text_in_a_number_column_is_named_by_file_line_and_column(tmp_path: Path):
    land(tmp_path, CSV + "3,abc,x,true,2013-02-01,2013-01-31T10:00:00Z\n")
    message = refusal(tmp_path, csv_source())
    assert "orders [2013-01-07]" in message
    assert str(tmp_path / "landing" / "2013-01-07.csv") in message
    assert "line 5, column 'amount': «'abc'»" in message, (
        "record 3 begins on line 5: record 2 has two"
    )


def test_the_first_bad_value_of_every_column_is_in_one_error(tmp_path: Path):
    land(tmp_path, "id,amount\n1,x\n1.5,y\n", "2013-01-07.csv")
    source = csv_source(columns={"id": "int64", "amount": "float64"})
    message = refusal(tmp_path, source)
    assert "line 3, column 'id': «'1.5'»" in message
    assert "line 2, column 'amount': «'x'»" in message
    assert "1 more such value" in message


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("id", "99999999999999999999"),
        ("amount", "inf"),
        ("paid", "yes"),
        ("day", "31/01/2013"),
        ("at", "2013-01-31T10:00:00"),
    ],
)
def test_a_value_that_is_not_of_its_type_is_refused(tmp_path: Path, column: str, text: str):
    source = csv_source(columns={column: DECLARED[column], "other": "string"}, key=["other"])
    land(tmp_path, f"{column},other\n{text},x\n")
    assert f"line 2, column '{column}': «'{text}'»" in refusal(tmp_path, source)


def test_text_that_means_no_value_is_declared(tmp_path: Path):
    columns = {"id": "int64", "amount": "float64"}
    land(tmp_path, "id,amount\n1,NA\n2,nan\n")
    assert "null_values" in refusal(tmp_path, csv_source(columns=columns))
    source = csv_source(columns=columns, null_values=["", "NA"])
    assert read(tmp_path, source)["amount"].to_list() == [None, None], "NaN is no value"


def test_many_columns_that_are_gone_are_one_sentence(tmp_path: Path):
    columns = {"id": "int64", **{f"pixel_{n}": "float64" for n in range(64)}}
    land(tmp_path, "id\n1\n")
    said = refusal(tmp_path, csv_source(columns=columns))
    assert "64 columns are declared but not there: 'pixel_0', 'pixel_1'" in said
    assert "'pixel_9'" not in said


def test_a_renamed_column_is_named_with_its_likely_new_name(tmp_path: Path):
    land(tmp_path, CSV.replace("amount", "ammount", 1))
    message = refusal(tmp_path, csv_source())
    assert "'amount' is declared but not there" in message
    assert "«'ammount'» is close: was it renamed?" in message


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path):
    land(tmp_path, "id,id\n1,2\n")
    assert "2 times" in refusal(tmp_path, csv_source(columns={"id": "int64"}))


def test_a_field_may_be_longer_than_the_reader_of_lines_takes_by_default(tmp_path: Path):
    columns = {"id": "int64", "note": "string", "amount": "float64"}
    land(tmp_path, f"id,note,amount\n1,{'a' * 200_000},3\n2,b,\n3,c,x\n")
    assert "line 4, column 'amount': «'x'»" in refusal(tmp_path, csv_source(columns=columns))
    land(tmp_path, f"id,note,amount\n1,{'a' * 200_000},3\n2,b,\n")
    assert read(tmp_path, csv_source(columns=columns))["amount"].to_list() == [3.0, None]


@pytest.mark.parametrize("end", ['"', '"a', '"ab', '"""', '"a""'])
def test_a_quote_that_is_open_at_the_end_is_refused_however_little_stands_in_it(
    tmp_path: Path, end: str
):
    land(tmp_path, f"id,note\n1,{end}")
    said = refusal(tmp_path, csv_source(columns={"id": "int64", "note": "string"}))
    assert "Look for an unclosed quote" in said


REST = b"true,2013-02-01,2013-01-31T10:00:00Z\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param(b"3,1.5", "2 fields, but the header has 6", id="cut off, and no nulls"),
        pytest.param(b"3,1,000.5,x," + REST, "7 fields", id="too many fields"),
        pytest.param(
            b"3,1.5,caf\xe9," + REST, "byte 0xe9 is not UTF-8", id="bytes that are no text"
        ),
    ],
)
def test_a_line_that_is_not_one_of_its_table_is_named(tmp_path: Path, line: bytes, said: str):
    land(tmp_path, CSV.encode() + line)
    assert f"line 5: {said}" in refusal(tmp_path, csv_source())


@pytest.mark.parametrize("content", ["", "\n", "id,amount,note,paid,day,at\n"])
def test_an_empty_partition_is_an_error(tmp_path: Path, content: str):
    land(tmp_path, content)
    assert "2013-01-07.csv" in refusal(tmp_path, csv_source())


def test_a_missing_partition_names_the_ones_that_are_there(tmp_path: Path):
    land(tmp_path, CSV, "2012-12-31.csv")
    message = refusal(tmp_path, csv_source())
    assert "there is no file" in message
    assert "2012-12-31.csv" in message


def test_a_missing_landing_folder_names_the_setting_and_the_remedy(tmp_path: Path):
    for root in (tmp_path / "absent", tmp_path):
        message = refusal(root, csv_source())
        assert "ML_ASSETS_SOURCES" in message
        assert "ml-assets demo" in message
    (tmp_path / "landings").mkdir()
    message = refusal(tmp_path, csv_source())
    assert "Did you mean 'landings'? Correct 'path' of this source in defs.yaml" in message


def test_json_lines_are_typed_and_a_key_left_out_is_no_value(tmp_path: Path):
    lines = '{"at": "2013-01-31T10:00:00Z", "n": 1, "x": 2}\n\n{"at": "2013-01-31T11:00:00Z"}\n'
    land(tmp_path, lines, "2013-01-07.jsonl")
    frame = read(tmp_path, events_source(n="int64", x="float64"))
    assert frame.rows() == [
        (datetime(2013, 1, 31, 10, tzinfo=UTC), 1, 2.0),
        (datetime(2013, 1, 31, 11, tzinfo=UTC), None, None),
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"at": "2013-01-31T10:00:00Z", "n": 1', "line 2 is not valid JSON"),
        ('{"at": null, "n": 1}, {"at": null, "n": 2}', "line 2 is not valid JSON"),
        ('{"at": null, "n": [{}\n{}]}', "line 2 is not valid JSON"),
        ("[1]", "line 2 holds a list, not an object"),
        ('{"at": "2013-01-31T10:00:00Z", "n": NaN}', "NaN is not JSON"),
        ('{"at": "2013-01-31T10:00:00Z", "n": "1"}', "line 2, column 'n': «'1'» is not int64"),
        ('{"at": "2013-01-31T10:00:00Z", "n": true}', "line 2, column 'n': «True» is not int64"),
        ('{"at": "2013-01-31T10:00:00Z", "n": 1.5}', "line 2, column 'n': «1.5» is not int64"),
        ('{"at": "yesterday", "n": 1}', "line 2, column 'at': «'yesterday'» is not datetime"),
        ('{"at": "2013-01-31T10:00:00Z", "m": 1}', "line 2 does not have the columns"),
    ],
)
def test_a_bad_event_is_named_by_its_line(tmp_path: Path, line: str, expected: str):
    land(tmp_path, '{"at": "2013-01-31T10:00:00Z", "n": 1}\n' + line + "\n", "2013-01-07.jsonl")
    assert expected in refusal(tmp_path, events_source(n="int64"))


@pytest.mark.parametrize(
    ("zone", "column", "text"),
    [
        ("America/New_York", "at", "9999-12-31 23:59:59"),
        ("Europe/Berlin", "at", "0001-01-01 00:00:00"),
        ("UTC", "at", "9999-12-31T23:59:59-05:00"),
        ("UTC", "day", "0000-01-01"),
    ],
)
def test_a_time_whose_year_in_utc_is_not_one_to_9999_is_named_and_may_mean_no_value(
    tmp_path: Path, zone: str, column: str, text: str
):
    fields = {"columns": {"id": "int64", column: DECLARED[column]}, "timezone": zone}
    land(tmp_path, f"id,{column}\n1,2013-01-31\n2,{text}\n")
    said = f"line 3, column '{column}': «'{text}'» is outside the years 1 to 9999 in UTC"
    told = refusal(tmp_path, csv_source(**fields))
    assert said in told and told.count("line 3") == 1
    leaving = csv_source(**fields, null_values=["", text])
    assert read(tmp_path, leaving)[column].null_count() == 1


def test_so_is_one_of_an_event_and_of_parquet(tmp_path: Path):
    late = "9999-12-31T23:59:59-05:00"
    land(tmp_path, f'{{"at": null}}\n{{"at": "{late}"}}\n', "2013-01-07.jsonl")
    said = f"line 2, column 'at': «'{late}'» is outside the years 1 to 9999 in UTC"
    assert said in refusal(tmp_path, events_source())
    for dtype in (pl.Datetime("ms"), pl.Datetime("us", "UTC"), pl.Date()):
        column = "day" if dtype == pl.Date else "at"
        last = 2_932_897 if dtype == pl.Date else 2**63 - 1
        put(tmp_path, pl.DataFrame({column: pl.Series([0, last]).cast(pl.Int64).cast(dtype)}))
        said = refusal(tmp_path, parquet_source(**{column: DECLARED[column]}))
        assert f"row 2, column '{column}'" in said and "the years 1 to 9999 are read" in said


def parquet_source(**columns: str) -> FilesSource:
    path = "landing/{partition}.parquet"
    return csv_source(path=path, format="parquet", columns=columns, key=list(columns)[:1])


def put(root: Path, frame: pl.DataFrame) -> None:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    land(root, buffer.getvalue(), "2013-01-07.parquet")


@pytest.mark.parametrize(
    ("column", "text"),
    [("day", "2023-02-29"), ("at", "2024-02-30 10:00"), ("at", "2024-13-01T00Z")],
)
def test_a_day_that_there_is_not_is_told_as_one(tmp_path: Path, column: str, text: str):
    source = csv_source(columns={"id": "int64", column: DECLARED[column]})
    land(tmp_path, f"id,{column}\n1,2013-01-31\n2,{text}\n")
    said = f"line 3, column '{column}': «'{text}'» names a day that there is not"
    assert said in refusal(tmp_path, source)


def test_whole_numbers_that_a_float_would_round_are_refused(tmp_path: Path):
    put(tmp_path, pl.DataFrame({"x": [2**53, -(2**53), None]}))
    assert read(tmp_path, parquet_source(x="float64"))["x"].to_list() == [2.0**53, -(2.0**53), None]
    for number in (2**53 + 1, 2**63 - 1):
        put(tmp_path, pl.DataFrame({"x": [1, number]}))
        said = f"row 2, column 'x': «{number}» would become another number as float64"
        assert said in refusal(tmp_path, parquet_source(x="float64"))


def test_parquet_is_widened_without_loss_or_refused(tmp_path: Path):
    source = parquet_source(id="int64", at="datetime")
    frame = pl.DataFrame(
        {"id": [1], "at": [datetime(2013, 1, 1)]},  # noqa: DTZ001  a Parquet time without a zone
        schema={"id": pl.Int16, "at": pl.Datetime("ms")},
    )
    put(tmp_path, frame)
    assert read(tmp_path, source).rows() == [(1, datetime(2013, 1, 1, tzinfo=UTC))]
    put(tmp_path, frame.with_columns(pl.lit("1").alias("id")))
    assert "column 'id' is String, declared as int64" in refusal(tmp_path, source)
    land(tmp_path, b"PAR1 cut", "2013-01-07.parquet")
    assert "not a complete Parquet file" in refusal(tmp_path, source)


def test_a_receipt_is_the_same_with_and_without_parsing_and_follows_place_and_content(
    tmp_path: Path,
):
    def receipts(root: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        args = ("orders", csv_source(), root, no_sql, WEEKS[0])
        return read_source(*args).receipt, receipt_of(*args)

    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    land(here, CSV)
    first, planned = receipts(here)
    assert first == planned
    assert first["source"] == str(here / "landing" / "{partition}.csv")
    land(elsewhere, CSV)
    moved, _ = receipts(elsewhere)
    assert moved == first | {"source": str(elsewhere / "landing" / "{partition}.csv")}
    land(here, CSV.replace("1.5", "1.6"))
    assert receipts(here)[0] != first


def test_available_are_the_partitions_that_have_landed(tmp_path: Path):
    land(tmp_path, CSV, "2013-01-21.csv")
    land(tmp_path, CSV, "2013-01-07.csv")
    found = look("orders", csv_source(), tmp_path, no_sql, WEEKS).keys
    assert found == ("2013-01-07", "2013-01-21")


def test_a_whole_table_is_read_without_a_window(tmp_path: Path):
    land(tmp_path, CSV, "all.csv")
    source = csv_source(path="landing/all.csv", partitioned=False)
    assert read_source("orders", source, tmp_path, no_sql, None).frame.height == 2
    with pytest.raises(ValueError, match="partitioned"):
        read_source("orders", source, tmp_path, no_sql, WEEKS[0])


MONTHS = [
    PartitionWindow(f"2024-0{m}-01", *(datetime(2024, n, 1, tzinfo=UTC) for n in (m, m + 1)))
    for m in (1, 2)
]


@pytest.mark.parametrize(
    ("path", "files"),
    [
        ("landing/air_{partition:%Y-%m}.csv", ["air_2024-01.csv", "air_2024-02.csv"]),
        ("landing/{partition:%Y/%m}/*.csv", ["2024/01/a.csv", "2024/02/a.csv"]),
        ("landing/{partition:%Y}/{partition:%Y%m}.csv", ["2024/202401.csv", "2024/202402.csv"]),
    ],
)
def test_a_partition_may_be_named_otherwise_than_its_key(
    tmp_path: Path, path: str, files: list[str]
) -> None:
    for number, name in enumerate([*files, "notes.csv"]):
        (tmp_path / "landing" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "landing" / name).write_text(f"id\n{number}\n")
    source = csv_source(path=path, columns={"id": "int64"})
    found = look("air", source, tmp_path, str, MONTHS)
    assert found.keys == ("2024-01-01", "2024-02-01")
    for number, window in enumerate(MONTHS):
        reading = read_source("air", source, tmp_path, str, window)
        assert reading.frame["id"].to_list() == [number]
        assert found.receipt(window.key) == reading.receipt


def test_times_without_a_zone_are_of_the_one_that_the_source_names(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    text = (
        "id,at\n1,2024-07-01 12:00\n2,2024-01-01T12:00:00.5\n3,2024-01-01T12:00:00Z\n4,2024-01-02\n"
    )
    (tmp_path / "landing" / "rows.csv").write_text(text)
    fields = {"columns": {"id": "int64", "at": "datetime"}, "path": "landing/rows.csv"}
    source = csv_source(**fields, partitioned=False, timezone="Europe/Berlin")
    assert read_source("rows", source, tmp_path, str, None).frame["at"].to_list() == [
        datetime(2024, 7, 1, 10, tzinfo=UTC),
        datetime(2024, 1, 1, 11, 0, 0, 500000, UTC),
        datetime(2024, 1, 1, 12, tzinfo=UTC),
        datetime(2024, 1, 1, 23, tzinfo=UTC),
    ]
    with pytest.raises(SourceError, match="give in 'timezone' the zone"):
        read_source("rows", csv_source(**fields, partitioned=False), tmp_path, str, None)
