"""What new finds can be read as it writes it: hidden folders, odd names, hours of a zone."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from ml_assets.settings import read_settings
from ml_assets.spec.load import load_spec
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.conftest import Cli, Said

START = datetime(2024, 1, 1)  # noqa: DTZ001


@pytest.fixture
def sources(house: Path) -> Path:
    return house / "SOURCES"


def write(file: Path, times: Sequence[datetime]) -> None:
    """Cars that come by, and whether they are late: a row for each of these times."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{at:%Y-%m-%d %H:%M},{n * 7 % 11}.5,{n * n % 3 % 2}" for n, at in enumerate(times)]
    file.write_text("\n".join(["at,speed,late", *lines]) + "\n")


def write_months(folder: Path, ending: str = "") -> None:
    for month in range(1, 13):
        days = [START.replace(month=month, day=day, hour=8) for day in range(1, 29)]
        write(folder / f"2024-{month:02}{ending}.csv", days)


@pytest.fixture
def new(cli: Cli) -> Cli:
    def called(what: Path, *flags: str, code: int = 0) -> Said:
        return cli("new", "cars", "--from", str(what), "--label", "late", *flags, code=code)

    return called


def spec_text(sources: Path) -> str:
    return (sources.parent / "PIPELINES" / "cars" / "defs.yaml").read_text()


def path_of(sources: Path) -> str:
    source = load_spec(sources.parent / "PIPELINES" / "cars").sources["rows"]
    return getattr(source, "path", "")


def test_a_hidden_folder_is_not_read_as_no_source_reads_it(sources: Path, new: Cli) -> None:
    write_months(sources / "cars")
    copy = sources / "cars" / ".ipynb_checkpoints" / "2024-03-checkpoint.csv"
    write(copy, [START.replace(month=3, day=day, hour=9) for day in range(1, 29)])
    new(sources / "cars")
    assert path_of(sources) == "cars/{partition:%Y-%m}.csv"
    assert "cadence: monthly, start: 2024-01-01" in spec_text(sources)


def test_a_table_of_delta_lake_is_refused_for_its_files_hold_deleted_rows(
    sources: Path, new: Cli
) -> None:
    (sources / "lake" / "_delta_log").mkdir(parents=True)
    pl.DataFrame({"at": [1], "late": [1]}).write_parquet(sources / "lake" / "part-0.parquet")
    said = new(sources / "lake", code=1).err
    assert "is a table of Delta Lake" in said and "`kind: delta`" in said


@pytest.mark.parametrize("place", ["growth_5%.csv", "a [raw].csv", "100%/rows.csv"])
def test_one_file_whose_path_no_source_can_have_is_copied(
    sources: Path, place: str, new: Cli
) -> None:
    write(sources / place, [START + timedelta(hours=3 * n) for n in range(80)])
    new(sources / place)
    assert path_of(sources) == "cars/rows.parquet"


def test_files_whose_names_no_source_can_have_are_refused_and_nothing_is_written(
    sources: Path, new: Cli
) -> None:
    write_months(sources / "cars", ending=" [raw]")
    said = new(sources / "cars", code=1).err
    assert "cars/2024-01 [raw].csv holds '[', which the path of a source cannot have" in said
    assert not (sources.parent / "PIPELINES" / "cars").exists()


def test_files_whose_column_holds_days_and_no_times_are_one_table(sources: Path, new: Cli) -> None:
    for day in (START.date() + timedelta(days=n) for n in range(12)):
        rows = [{"car": f"{day} {n}", "day": day, "speed": n / 2, "late": n % 2} for n in range(20)]
        pl.DataFrame(rows).write_parquet(sources / f"{day}.parquet")
    assert "day holds days, and partitions need times: the files are" in new(sources).out
    assert path_of(sources) == "*.parquet"


@pytest.mark.parametrize(
    ("zone", "path"),
    [("Europe/Lisbon", "cars/*.csv"), ("Asia/Tokyo", "cars/{partition:%Y-%m-%d-%H}.csv")],
)
def test_hours_of_a_zone_whose_clock_changes_are_one_table(
    sources: Path, new: Cli, zone: str, path: str
) -> None:
    for hour in (START + timedelta(hours=n) for n in range(12)):
        times = [hour + timedelta(minutes=2 * n) for n in range(30)]
        write(sources / "cars" / f"{hour:%Y-%m-%d-%H}.csv", times)
    said = new(sources / "cars", "--timezone", zone).out
    assert path_of(sources) == path
    told = f"an hour comes twice in {zone} when the clocks go back" in said
    assert told is (path == "cars/*.csv")


def weeks(folder: Path, name: str, count: int = 6) -> None:
    """Files whose names hold no date, one after the other in time."""
    for number in range(count):
        times = [START + timedelta(days=10 * number, hours=3 * n) for n in range(30)]
        write(folder / f"{name}-{'abcdefgh'[number]}.csv", times)


@pytest.mark.parametrize("place", ["SOURCES", "elsewhere"])
def test_a_link_that_leads_out_of_its_folder_is_read_by_its_own_name(
    sources: Path, place: str, cli: Cli, new: Cli
) -> None:
    weeks(sources.parent / place / "cars", "north")
    write(
        sources.parent / place / "far.csv", [START + timedelta(days=90, hours=n) for n in range(9)]
    )
    (sources.parent / place / "cars" / "south.csv").symlink_to("../far.csv")
    new(sources.parent / place / "cars")
    assert path_of(sources) == "cars/*.csv"
    assert (sources / "cars" / "south.csv").is_file()
    cli("run", "cars", "--through", "raw_snapshot")
    record = (
        open_pipeline("cars", read_settings()).now().record(Address("cars", "raw_snapshot", "rows"))
    )
    assert record is not None
    assert record.rows == 189


def test_a_link_that_no_source_would_follow_is_refused_and_nothing_is_written(
    sources: Path, new: Cli
) -> None:
    weeks(sources / "cars", "north")
    write(sources.parent / "far.csv", [START + timedelta(days=90, hours=n) for n in range(9)])
    (sources / "cars" / "south.csv").symlink_to(sources.parent / "far.csv")
    said = new(sources / "cars", code=1).err
    assert "cars/south.csv is a symbolic link that leads out of" in said
    assert "Put the file itself there." in said
    assert not (sources.parent / "PIPELINES" / "cars").exists()


def test_a_single_link_is_a_table_by_its_own_name(sources: Path, cli: Cli, new: Cli) -> None:
    far = sources.parent / "far.csv"
    write(far, [START + timedelta(hours=3 * n) for n in range(80)])
    (sources / "inside.csv").symlink_to("real.csv")
    write(sources / "real.csv", [START + timedelta(hours=3 * n) for n in range(80)])
    (sources / "out.csv").symlink_to(far)
    new(sources / "inside.csv")
    assert path_of(sources) == "inside.csv"
    cli("new", "more", "--from", str(sources / "out.csv"), "--label", "late")
    assert (sources / "more" / "rows.parquet").is_file(), "no source follows it, so it is copied"


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("cars/north-*.csv", "cars/north-*.csv"),
        ("cars/north-*", "cars/north-*.csv"),
        ("*/nort?-*.csv", "*/nort?-*.csv"),
        ("**/north-*.csv", "**/north-*.csv"),
    ],
)
def test_a_pattern_is_what_the_source_reads(
    sources: Path, pattern: str, path: str, new: Cli
) -> None:
    weeks(sources / "cars", "north")
    (sources / "cars" / "prices.csv").write_text("day,price\n1,2\n")
    (sources / "cars" / "north-notes.txt").write_text("none of it is a table")
    new(sources / pattern)
    assert path_of(sources) == path


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("cars/2024-*.csv", "cars/{partition:%Y-%m}.csv"),
        ("cars/2024-0*.csv", "cars/2024-0*.csv"),
    ],
)
def test_months_that_a_pattern_picks_from_others_are_read_by_it(
    sources: Path, new: Cli, pattern: str, path: str
) -> None:
    write_months(sources / "cars")
    write(sources / "cars" / "2023-12.csv", [START - timedelta(days=9)])  # before the first
    told = new(sources / pattern).out
    assert path_of(sources) == path
    said = "as partitions they would be read with 2024-10.csv, which the pattern leaves out: the"
    assert (said in told) is ("{" not in path)


@pytest.mark.parametrize("pattern", ["cars/[n]orth-*.csv", "*/../north-*.csv", "cars/no**.csv"])
def test_a_pattern_that_no_source_reads_is_refused(sources: Path, new: Cli, pattern: str) -> None:
    weeks(sources / "cars", "north")
    assert "is no pattern that a source can read: *, ? and **/ are expected" in (
        new(sources / pattern, code=1).err
    )


def test_a_pattern_that_stands_for_more_than_tables_is_refused(sources: Path, new: Cli) -> None:
    weeks(sources / "cars", "north")
    (sources / "cars" / "north-z.tsv").write_text("none of it is such a table")
    assert (
        "north-?.?sv stands for north-z.tsv, too" in new(sources / "cars/north-?.?sv", code=1).err
    )
