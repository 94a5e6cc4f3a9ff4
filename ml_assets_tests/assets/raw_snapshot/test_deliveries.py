"""A partition is one file or many, plain or packed, here; and only what is declared is read."""

from pathlib import Path

import polars as pl
import pytest

from ml_assets.assets.raw_snapshot.readers.read_source import receipt_of
from ml_assets.errors import SourceError
from ml_assets_tests.assets.raw_snapshot.delivering import (
    FIRST,
    WEEKS,
    deliver,
    files,
    looked,
    no_sql,
    refusal,
    rows,
)

ONE = "order,shop\n1,north\n"
TWO = "order,shop\n2,south\n"
BOTH = [(1, "north"), (2, "south")]


def test_a_partition_is_all_the_files_that_its_path_stands_for(tmp_path: Path):
    week = "orders/2024-01-01"
    deliver(
        tmp_path,
        {
            f"{week}/b.csv": TWO,
            f"{week}/a.csv": ONE,
            f"{week}/.c.csv": "still being written",
            f"{week}/notes.txt": "not a table",
            f"{week}/deeper/d.csv": ONE,
            "orders/2024-01-08/a.csv": TWO,
        },
    )
    source = files(path="orders/{partition}/*.csv")
    assert rows(tmp_path, source) == BOTH
    assert looked(tmp_path, source).keys == ("2024-01-01", "2024-01-08")
    assert rows(tmp_path, files(path="orders/{partition}/?.csv")) == BOTH
    deep = files(path="orders/{partition}/**/*.csv")
    assert rows(tmp_path, deep) == [BOTH[0], *BOTH], "folders of any depth, this one among them"


def test_the_partition_may_be_a_part_of_a_name_and_come_twice(tmp_path: Path):
    path = "{partition}/shop-{partition}-*.csv"
    deliver(
        tmp_path,
        {"2024-01-01/shop-2024-01-01-n.csv": ONE, "2024-01-01/shop-2024-01-08-n.csv": TWO},
    )
    assert rows(tmp_path, files(path=path)) == BOTH[:1]
    assert looked(tmp_path, files(path=path)).keys == ("2024-01-01",)


def test_gzip_is_read_as_its_name_says(tmp_path: Path):
    deliver(tmp_path, {"orders/2024-01-01.csv.gz": ONE})
    assert rows(tmp_path, files(path="orders/{partition}.csv.gz")) == BOTH[:1]
    packed = (tmp_path / "orders/2024-01-01.csv.gz").read_bytes()
    deliver(tmp_path, {"orders/2024-01-01.csv": packed, "orders/2024-01-01.jsonl": b"PK\x03\x04"})
    assert "its name does not say so" in refusal(tmp_path, files())
    lines = files(path="orders/{partition}.jsonl", format="jsonl")
    assert "ZIP archive" in refusal(tmp_path, lines)
    deliver(tmp_path, {"orders/2024-01-01.csv.gz": packed[:-8] + b"rubbish!"})
    assert "not complete gzip" in refusal(tmp_path, files(path="orders/{partition}.csv.gz"))


def test_the_receipt_of_many_files_follows_each_and_is_the_same_without_parsing(tmp_path: Path):
    source = files(path="orders/{partition}/*.csv")

    def receipt() -> dict[str, object]:
        planned = receipt_of("orders", source, tmp_path, no_sql, FIRST)
        assert planned == looked(tmp_path, source).receipt(FIRST.key)
        return planned

    deliver(tmp_path, {"orders/2024-01-01/a.csv": ONE, "orders/2024-01-01/b.csv": TWO})
    first = receipt()
    assert first["source"] == f"{tmp_path}/orders/{{partition}}/*.csv", "where it was read"
    deliver(tmp_path, {"orders/2024-01-01/b.csv": TWO.replace("2", "3")})
    second = receipt()
    assert second != first
    deliver(tmp_path, {"orders/2024-01-01/c.csv": TWO})
    assert receipt() not in (first, second), "a late file is a new version of its partition"


def test_a_link_that_leads_out_fails_its_partition_and_no_other(tmp_path: Path):
    root = tmp_path / "sources"
    deliver(tmp_path, {"elsewhere/a.csv": ONE})
    deliver(root, {"orders/2024-01-01/a.csv": ONE, "orders/2024-01-08/a.csv": TWO})
    (root / "orders/2024-01-08/b.csv").symlink_to(tmp_path / "elsewhere/a.csv")
    (root / "orders/2024-01-15").symlink_to(tmp_path / "elsewhere")
    source = files(path="orders/{partition}/*.csv")
    found = looked(root, source)
    assert found.receipt("2024-01-01")["files"] == 1
    for week in WEEKS[1:]:
        assert "leads out" in refusal(root, source, week)
        with pytest.raises(SourceError, match="leads out"):
            found.receipt(week.key)
    assert rows(root, source) == BOTH[:1]


def test_a_name_that_is_not_text_fails_its_partition(tmp_path: Path):
    deliver(tmp_path, {"orders/2024-01-01/a.csv": ONE, "orders/2024-01-08/a.csv": ONE})
    (tmp_path / "orders/2024-01-08" / b"caf\xe9.csv".decode("utf-8", "surrogateescape")).touch()
    (tmp_path / "orders/2024-01-08/two\nlines.csv").touch()
    source = files(path="orders/{partition}/*.csv")
    assert rows(tmp_path, source) == BOTH[:1]
    assert "Rename the file" in refusal(tmp_path, source, WEEKS[1])


REFERRED = {"path": "string", "bytes": "int64", "camera": "string", "frame": "int64"}


def images(**changes: object):
    fields = {
        "path": "images/{partition}/{camera}/{frame}.jpg",
        "format": "binary",
        "columns": REFERRED,
        "key": ["path"],
    }
    return files(**(fields | changes))


def test_binary_files_are_taken_in_by_reference_with_what_their_path_says(tmp_path: Path):
    deliver(
        tmp_path,
        {
            "images/2024-01-01/left/0001.jpg": b"\xff\xd8 one",
            "images/2024-01-01/right/0002.jpg": b"\xff\xd8 two",
            "images/2024-01-01/right/.0003.jpg": b"partly there",
        },
    )
    assert rows(tmp_path, images()) == [
        ("images/2024-01-01/left/0001.jpg", 6, "left", 1),
        ("images/2024-01-01/right/0002.jpg", 6, "right", 2),
    ]


def test_what_a_file_tells_of_itself_is_a_column_where_it_is_declared(tmp_path: Path):
    deliver(tmp_path, {"images/2024-01-01/left/1.jpg": b"abc"})
    columns = {"path": "string", "sha256": "string", "etag": "string", "modified": "datetime"}
    told = images(path="images/{partition}/*/*.jpg", columns=columns)
    ((_, digest, etag, modified),) = rows(tmp_path, told)
    assert digest == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert etag.startswith("3-")
    assert modified.isoformat() == "2024-05-01T11:00:00+00:00"
    before = receipt_of("orders", images(), tmp_path, no_sql, FIRST)
    deliver(tmp_path, {"images/2024-01-01/left/1.jpg": b"abcd"})
    assert receipt_of("orders", images(), tmp_path, no_sql, FIRST) != before


def test_a_field_of_a_path_that_is_not_of_its_type_names_the_file(tmp_path: Path):
    deliver(tmp_path, {"images/2024-01-01/left/last.jpg": b"abc"})
    said = refusal(tmp_path, images())
    assert "the file images/2024-01-01/left/last.jpg, column 'frame': «'last'» is not int64" in said


def test_no_files_is_not_an_empty_table(tmp_path: Path):
    deliver(tmp_path, {"images/2024-01-08/left/1.jpg": b"", "orders/2024-01-08/a.csv": ONE})
    assert "no file is there" in refusal(tmp_path, images())
    said = refusal(tmp_path, files(path="orders/{partition}/*.csv"))
    assert "no file matches" in said
    assert looked(tmp_path, images()).keys == ("2024-01-08",)


def prices():
    return files(path="prices/{version}.csv")


def test_a_partition_gets_the_version_that_was_known_when_it_began(tmp_path: Path):
    deliver(tmp_path, {"prices/2024-01-01.csv": ONE, "prices/2024-01-10.csv": TWO})
    assert [rows(tmp_path, prices(), week) for week in WEEKS] == [BOTH[:1], BOTH[:1], BOTH[1:]]
    found = looked(tmp_path, prices())
    before = [found.receipt(week.key) for week in WEEKS]
    deliver(tmp_path, {"prices/2024-01-15.csv": ONE.replace("north", "west")})
    after = [looked(tmp_path, prices()).receipt(week.key) for week in WEEKS]
    assert after[:2] == before[:2], "what is known later changes no earlier partition"
    assert after[2] != before[2]


def test_no_partition_uses_a_version_from_after_its_beginning(tmp_path: Path):
    deliver(tmp_path, {"prices/2024-01-05.csv": ONE})
    assert looked(tmp_path, prices()).keys == ("2024-01-08", "2024-01-15")
    said = refusal(tmp_path, prices())
    assert "no version" in said
    assert "2024-01-05" in said
    deliver(tmp_path, {"prices/final.csv": ONE})
    assert "'final' is not a date" in refusal(tmp_path, prices(), WEEKS[1])


@pytest.mark.parametrize(
    ("name", "said"),
    [("2024-01-15", "leads out of"), ("2024-01-14\x1b", "characters that cannot be displayed")],
)
def test_a_version_that_is_not_read_holds_up_no_earlier_partition(
    tmp_path: Path, name: str, said: str
):
    root, away = tmp_path / "here", tmp_path / "away"
    deliver(root, {"prices/2024-01-05/a.csv": ONE})
    deliver(root if "\x1b" in name else away, {f"prices/{name}/a.csv": TWO})
    if not (root / "prices" / name).exists():
        (root / "prices" / name).symlink_to(away / "prices" / name)
    source = files(path="prices/{version}/*.csv")
    found = looked(root, source)
    assert rows(root, source, WEEKS[1]) == BOTH[:1]
    assert found.receipt(WEEKS[1].key) == receipt_of("orders", source, root, no_sql, WEEKS[1])
    assert said in refusal(root, source, WEEKS[2])
    with pytest.raises(SourceError, match=said):
        found.receipt(WEEKS[2].key)


@pytest.mark.parametrize("count", [2, 3])
def test_too_many_files_of_rows_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
):
    monkeypatch.setattr("ml_assets.assets.raw_snapshot.readers.files.KEPT", 2)
    deliver(tmp_path, {f"orders/2024-01-01/{n}.csv": ONE for n in range(count)})
    source = files(path="orders/{partition}/*.csv")
    if count == 2:
        assert len(rows(tmp_path, source)) == 2
    else:
        assert "3 files are there for one partition" in refusal(tmp_path, source)


def test_parquet_files_of_one_partition_need_not_have_the_same_types(tmp_path: Path):
    for name, dtype in (("a", pl.Int16), ("b", pl.Int64)):
        file = tmp_path / f"orders/2024-01-01/{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pl.DataFrame({"order": [1], "shop": [name]}, {"order": dtype, "shop": None}).write_parquet(
            file
        )
    source = files(path="orders/{partition}/*.parquet", format="parquet")
    assert rows(tmp_path, source) == [(1, "a"), (1, "b")]
