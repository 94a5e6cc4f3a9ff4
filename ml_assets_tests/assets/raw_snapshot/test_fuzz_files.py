"""Whatever lies in the landing folder: rows as declared, or one SourceError; in bounded memory."""

import gzip
import io
import json
import tracemalloc
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ml_assets.assets.raw_snapshot.readers import json_lines_format as events
from ml_assets.assets.raw_snapshot.readers.csv_format import parse_csv
from ml_assets.assets.raw_snapshot.readers.json_lines_format import parse_lines
from ml_assets.assets.raw_snapshot.readers.parquet_format import parse_parquet
from ml_assets.assets.raw_snapshot.schema import TYPES, Columns
from ml_assets.errors import SourceError
from ml_assets_tests.assets.raw_snapshot.delivering import deliver, files, looked, refusal, rows
from ml_assets_tests.fresh import said_by

DECLARED: Columns = {
    "id": "int64",
    "x": "float64",
    "on": "boolean",
    "at": "datetime",
    "s": "string",
}
AT = datetime(2024, 1, 1, tzinfo=UTC)
CSV = b'id,x,on,at,s\n1,1.5,true,2024-01-01T00:00:00Z,"a, b"\n2,,false,,\n'
JSONL = b'{"id": 1, "x": 1.5, "on": true, "at": "2024-01-01T00:00:00Z", "s": "a"}\n{"id": 2}\n'
NASTY = [
    "\0",
    '"',
    "\r",
    "\n",
    ",",
    "NaN",
    "inf",
    "1e999",
    "9" * 5000,
    "\ud7ff",
    "{",
    "[",
    "é",
    " ",
]
MEGABYTE = 1 << 20
BOUND_MEGABYTES = 700
"""Of one reading of a bomb, the libraries included."""

fuzzing = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def parquet(**changes: object) -> bytes:
    columns = {
        "id": [1, 2],
        "x": [1.5, None],
        "on": [True, False],
        "at": [AT, None],
        "s": ["a", ""],
    }
    buffer = io.BytesIO()
    pl.DataFrame({**columns, "s": ["a", ""], **changes}).write_parquet(buffer)
    return buffer.getvalue()


PARQUET = parquet()
PARSERS: dict[str, tuple[Callable[[bytes], pl.DataFrame], bytes]] = {
    "csv": (lambda content: parse_csv(content, DECLARED, ("",), "the file"), CSV),
    "jsonl": (lambda content: parse_lines(content, DECLARED, "the file"), JSONL),
    "parquet": (lambda content: parse_parquet(content, DECLARED, "the file"), PARQUET),
}


def sound_or_refused(kind: str, content: bytes) -> None:
    """Either a table as declared, with no infinity and no NaN, or a SourceError in plain words."""
    try:
        frame = PARSERS[kind][0](content)
    except SourceError as error:
        assert "the file" in str(error)
        assert len(str(error)) < 20_000, "a message is read by a person"
        return
    assert frame.schema == {name: TYPES[dtype] for name, dtype in DECLARED.items()}
    assert frame["x"].is_finite().fill_null(True).all()


@pytest.mark.parametrize("kind", PARSERS)
def test_the_file_itself_is_read(kind: str):
    parse, content = PARSERS[kind]
    assert parse(content)["id"].to_list() == [1, 2]


@pytest.mark.parametrize("kind", PARSERS)
@fuzzing
@given(data=st.data())
def test_a_file_with_some_bytes_changed_is_sound_or_refused(kind: str, data: st.DataObject):
    content = bytearray(PARSERS[kind][1])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    sound_or_refused(kind, bytes(content))


@pytest.mark.parametrize("kind", PARSERS)
@fuzzing
@given(data=st.data())
def test_a_file_with_a_part_cut_out_or_put_in_is_sound_or_refused(kind: str, data: st.DataObject):
    content = PARSERS[kind][1]
    begin, end = sorted(data.draw(st.integers(0, len(content))) for _ in range(2))
    inserted = data.draw(st.binary(max_size=20) | st.sampled_from(NASTY).map(str.encode))
    sound_or_refused(kind, content[:begin] + inserted + content[end:])


@pytest.mark.parametrize("kind", PARSERS)
@fuzzing
@given(content=st.binary(max_size=300))
def test_bytes_of_any_kind_are_sound_or_refused(kind: str, content: bytes):
    sound_or_refused(kind, content)


@fuzzing
@given(
    cells=st.lists(st.lists(st.sampled_from(NASTY) | st.text(max_size=6), max_size=6), max_size=6)
)
def test_text_of_any_kind_in_a_csv_is_sound_or_refused(cells: list[list[str]]):
    lines = [",".join(row) for row in cells]
    sound_or_refused("csv", "\n".join(["id,x,on,at,s", *lines]).encode("utf-8", "replace"))


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        ("csv", CSV.replace(b"1.5", b"inf"), "«'inf'» is not float64"),
        ("csv", CSV.replace(b"1.5", b"1e999"), "«'1e999'» is not float64"),
        ("csv", CSV.replace(b"a, b", "käse".encode("latin-1")), "is not UTF-8"),
        ("csv", CSV.decode().encode("utf-16"), "is not UTF-8"),
        ("csv", b"id,x,on,at,s,id\n1,1,1,1,1,1\n", "is there 2 times"),
        ("csv", CSV.replace(b"00:00Z", b"00:00"), "is not datetime"),
        ("jsonl", JSONL.replace(b"1.5", b"NaN"), "NaN is not JSON"),
        ("jsonl", JSONL.replace(b"1.5", b"-Infinity"), "-Infinity is not JSON"),
        ("jsonl", JSONL.replace(b"1.5", b"1e999"), "«inf» is not float64"),
        (
            "jsonl",
            JSONL.replace(b'{"id": 2}', b'{"id": 2, "id": 3}'),
            "the key 'id' is there twice",
        ),
        (
            "jsonl",
            JSONL + b'{"id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
            "is not valid JSON",
        ),
        ("jsonl", JSONL.replace(b'"a"', '"\xe9"'.encode("latin-1")), "is not valid JSON"),
        ("parquet", parquet(x=[float("inf"), 1.0]), "row 1, column 'x': «inf» is not float64"),
        ("parquet", parquet(id=[2**63, 1]), "column 'id' is UInt64, declared as int64"),
        ("parquet", parquet(s=[["nested"], []]), "column 's' is List(String)"),
        ("parquet", PARQUET[:-4], "not a complete Parquet file"),
    ],
)
def test_what_no_row_may_hold_is_named(kind: str, content: bytes, said: str):
    with pytest.raises(SourceError) as caught:
        PARSERS[kind][0](content)
    assert said in str(caught.value)


def test_nan_is_no_value_and_times_of_many_zones_are_one_instant():
    assert PARSERS["parquet"][0](parquet(x=[float("nan"), 1.0]))["x"].to_list() == [None, 1.0]
    zoned = b"id,x,on,at,s\n1,,,2024-01-01T05:30:00+05:30,\n2,,,2023-12-31T19:00:00-05:00,\n"
    assert PARSERS["csv"][0](zoned)["at"].to_list() == [AT, AT]
    there = [AT.astimezone(timezone(timedelta(hours=5, minutes=30)))] * 2
    (found,) = PARSERS["parquet"][0](parquet(at=there))["at"].unique()
    assert found == AT


@pytest.mark.parametrize("columns", [2_000, 300_000])
def test_a_huge_header_is_refused_in_few_words(columns: int):
    header = ",".join(f"column_{n}" for n in range(columns))
    sound_or_refused("csv", f"{header}\n".encode())
    sound_or_refused("csv", b"x" * (3 * MEGABYTE))
    event = json.dumps({f"column_{n}": n for n in range(min(columns, 2_000))})
    sound_or_refused("jsonl", event.encode())


def _zip_bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("orders.csv", bytes(100 * MEGABYTE))
    return buffer.getvalue()


def _gzip_bomb() -> bytes:
    return gzip.compress(bytes(300 * MEGABYTE), 1)


def _many_members() -> bytes:
    return gzip.compress(b"") * 50_000


def _parquet_bomb() -> bytes:
    """1.3 GB of values, or so its footer says, in some kilobytes."""
    buffer = io.BytesIO()
    column = pl.repeat(1, 4_000_000, dtype=pl.Int8, eager=True)
    pl.DataFrame({f"column_{n}": column for n in range(40)}).write_parquet(buffer)
    return buffer.getvalue()


def _parquet_of_one_long_word() -> bytes:
    """3 GB of text in some kilobytes: one word, and as many references to it as there are rows."""
    rows = 300_000
    word = pa.DictionaryArray.from_arrays(
        pa.array([0] * rows, pa.int32()), pa.array(["x" * 10_000])
    )
    table = pa.table({"order": pa.array(range(rows)), "shop": word})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", store_schema=False)
    return buffer.getvalue()


_READ = """
import resource, sys
from pathlib import Path
from ml_assets.errors import SourceError
from ml_assets_tests.assets.raw_snapshot.delivering import files, refusal
print(refusal(Path(sys.argv[1]), files(path=sys.argv[2], format=sys.argv[3])))
status = Path("/proc/self/status")  # a new program has its parent's ru_maxrss on Linux
peak = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")] \
    if status.exists() else [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024]
print(int(peak[0]) // 1024)
"""


@pytest.mark.parametrize(
    ("name", "bomb", "said"),
    [
        ("{partition}.csv", _zip_bomb, "is a ZIP archive"),
        ("{partition}.csv.gz", _gzip_bomb, "unpack to more than"),
        ("{partition}.csv.gz", _many_members, "does not have the columns"),
        ("{partition}.parquet", _parquet_bomb, "bytes of Parquet unpack to"),
        ("{partition}.parquet", _parquet_of_one_long_word, "text that unpacks to 3,000,000,000"),
    ],
)
def test_a_bomb_is_refused_in_bounded_memory(
    tmp_path: Path, name: str, bomb: Callable[[], bytes], said: str
):
    deliver(tmp_path / "sources", {name.format(partition="2024-01-01"): bomb()})
    kind = "parquet" if "parquet" in name else "csv"
    printed = said_by(_READ, str(tmp_path / "sources"), name, kind, cwd=Path(__file__).parents[3])
    *message, peak = printed.splitlines()
    assert said in "\n".join(message)
    assert int(peak) < BOUND_MEGABYTES
    assert [p.name for p in tmp_path.iterdir()] == ["sources"], "nothing is unpacked beside it"


def test_lines_that_hold_nothing_take_little_more_memory_than_they_are() -> None:
    """64 KB of gzip may be twenty million of them."""
    lines = 200_000
    content = JSONL.splitlines(keepends=True)[0] + b"{}\n" * lines
    tracemalloc.start()
    try:
        frame = PARSERS["jsonl"][0](content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(frame), frame["id"].null_count()) == (lines + 1, lines)
    assert peak < 100 * lines, "a Python object for each takes three times that"


def test_a_file_is_judged_whole_however_few_of_its_lines_are_objects_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "_AT_ONCE", 2)
    columns: Columns = {"id": "int64", "s": "string"}
    text = b'{"id": 1}\n\n{"id": 2}\n{"id": 3}\n\n{"id": 4}\n{"id": 5, "s": "late"}\n'
    frame = parse_lines(text, columns, "the file")
    assert frame.rows() == [(1, None), (2, None), (3, None), (4, None), (5, "late")]
    with pytest.raises(SourceError, match=r"line 3, column 'id'.*and 1 more such value"):
        parse_lines(text.replace(b"2", b'"b"').replace(b"4", b'"d"'), columns, "the file")
    with pytest.raises(SourceError, match="column 's' is declared but not there"):
        parse_lines(text.replace(b', "s": "late"', b""), columns, "the file")
    with pytest.raises(SourceError, match="the file, line 7"):
        parse_lines(text.replace(b'"s":', b'"other":'), columns, "the file")


def test_too_many_empty_lines_for_the_columns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_BYTES", 8 * 5 * 100)
    first = JSONL.splitlines(keepends=True)[0]
    assert len(PARSERS["jsonl"][0](first + b"{}\n" * 99)) == 100
    with pytest.raises(SourceError, match="more than 500 values"):
        PARSERS["jsonl"][0](first + b"{}\n" * 100)


def test_a_partition_that_climbs_out_is_never_a_path(tmp_path: Path):
    from ml_assets.spec.partitions import PartitionWindow

    deliver(
        tmp_path, {"orders/2024-01-01.csv": "order,shop\n1,north\n", "x.csv": "order,shop\n2,s\n"}
    )
    climbing = PartitionWindow("../x", AT, AT + timedelta(days=7))
    source = files(path="orders/{partition}.csv")
    assert "leads out" in refusal(tmp_path / "orders", files(path="{partition}.csv"), climbing)
    assert looked(tmp_path, source, [climbing]).keys == ()


def test_two_rows_with_one_key_are_both_there_for_the_contract_to_judge(tmp_path: Path):
    deliver(tmp_path, {"orders/2024-01-01.csv": "order,shop\n1,north\n1,south\n1,north\n"})
    assert rows(tmp_path, files()) == [(1, "north"), (1, "north"), (1, "south")]
