"""CSV as it is written elsewhere: new finds how, the spec keeps it, and the source reads it so."""

from pathlib import Path

import polars as pl
import pytest

from ml_assets.assets.raw_snapshot.readers.read_source import read_source
from ml_assets.spec.load import load_spec
from ml_assets_tests.conftest import Cli

ROWS = [(n, ("Zürich", "Genève", "Köln €")[n % 3], n / 4 - 3, n % 2) for n in range(60)]


def written(separator: str, decimal: str, euro: str = "€") -> str:
    lines = [separator.join(("id", "town", "depth", "wet"))]
    for number, town, depth, wet in ROWS:
        fields = (str(number), town, f"{depth:.2f}".replace(".", decimal), str(wet))
        lines.append(separator.join(fields).replace("€", euro))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("content", "said", "dialect"),
    [
        (written(";", ",").encode("utf-8-sig"), "semicolons, decimal commas", "separator: ;"),
        (written(",", ".").encode("utf-8-sig"), "", ""),
        (written("\t", ".", "E").encode("latin-1"), "tabs, in LATIN-1", "encoding: latin-1"),
        (written("|", ",").encode("cp1252"), "bars, decimal commas, in CP1252", "encoding: cp1252"),
        (written(";", ",").encode("utf-16"), "in UTF-16", "encoding: utf-16"),
    ],
)
def test_a_file_is_read_as_it_is_written(
    house: Path, cli: Cli, content: bytes, said: str, dialect: str
) -> None:
    (house / "SOURCES" / "wells.csv").write_bytes(content)
    told = cli("new", "wells", "--from", str(house / "SOURCES/wells.csv"), "--label", "wet").out
    assert said in told
    folder = house / "PIPELINES" / "wells"
    assert dialect in (folder / "defs.yaml").read_text()
    source = load_spec(folder).sources["rows"]
    frame = read_source("rows", source, house / "SOURCES", lambda name: name, None).frame
    assert frame.schema["depth"] == pl.Float64
    assert frame.sort("id")["depth"].to_list() == [depth for _, _, depth, _ in ROWS]
    assert frame.sort("id")["town"][1] == "Genève"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a,b;c,d\n" + "1,2;3,4\n" * 9, "',' and ';' may both separate its values"),
        (
            "id;a;d\n" + "".join(f"{n};{n},5;{n}.5\n" for n in range(9)),
            "a comma in 'a' and a point",
        ),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(
    house: Path, cli: Cli, content: str, said: str
) -> None:
    (house / "both.csv").write_text(content)
    assert said in cli("new", "both", "--from", str(house / "both.csv"), "--label", "d", code=1).err


def test_files_of_one_table_are_written_alike(house: Path, cli: Cli) -> None:
    folder = house / "SOURCES" / "wells"
    folder.mkdir()
    (folder / "a.csv").write_text(written(";", ","))
    (folder / "b.csv").write_text(written(",", "."))
    said = cli("new", "wells", "--from", str(folder), "--label", "wet", code=1).err
    assert "in different ways: a.csv by ';', b.csv by ','" in said
    (folder / "b.csv").write_bytes(written(";", ",").encode("cp1252"))
    said = cli("new", "wells", "--from", str(folder), "--label", "wet", code=1).err
    assert "a.csv is UTF-8, b.csv is CP1252" in said


def test_a_point_among_decimal_commas_is_no_fraction(house: Path, cli: Cli) -> None:
    file = house / "SOURCES" / "wells.csv"
    file.write_text(written(";", ","))
    cli("new", "wells", "--from", str(file), "--label", "wet")
    file.write_text(written(";", ",").replace("11,75", "1.500"))
    said = cli("run", "wells", "--through", "raw_snapshot", code=1).err
    assert "column 'depth': «'1.500'» is not float64" in said
