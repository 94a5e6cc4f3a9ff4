"""What new finds can be read as it writes it: hidden folders, odd names, hours of a zone."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from ml_assets.cli.main import main
from ml_assets.spec.load import load_spec

START = datetime(2024, 1, 1)  # noqa: DTZ001


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of sources, with state and pipelines beside it."""
    for name in ("HOME", "PIPELINES", "SOURCES"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(f"ML_ASSETS_{name}", str(tmp_path / name))
    return tmp_path / "SOURCES"


def write(file: Path, times: Sequence[datetime]) -> None:
    """Cars that come by, and whether they are late: a row for each of these times."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{at:%Y-%m-%d %H:%M},{n * 7 % 11}.5,{n * n % 3 % 2}" for n, at in enumerate(times)]
    file.write_text("\n".join(["at,speed,late", *lines]) + "\n")


def write_months(folder: Path, ending: str = "") -> None:
    for month in range(1, 13):
        days = [START.replace(month=month, day=day, hour=8) for day in range(1, 29)]
        write(folder / f"2024-{month:02}{ending}.csv", days)


def new(what: Path, *flags: str) -> int:
    return main(["new", "cars", "--from", str(what), "--label", "late", *flags])


def spec_text(sources: Path) -> str:
    return (sources.parent / "PIPELINES" / "cars" / "defs.yaml").read_text()


def path_of(sources: Path) -> str:
    source = load_spec(sources.parent / "PIPELINES" / "cars").sources["rows"]
    return getattr(source, "path", "")


def test_a_hidden_folder_is_not_read_as_no_source_reads_it(sources: Path) -> None:
    write_months(sources / "cars")
    copy = sources / "cars" / ".ipynb_checkpoints" / "2024-03-checkpoint.csv"
    write(copy, [START.replace(month=3, day=day, hour=9) for day in range(1, 29)])
    assert new(sources / "cars") == 0
    assert path_of(sources) == "cars/{partition:%Y-%m}.csv"
    assert "cadence: monthly, start: 2024-01-01" in spec_text(sources)


@pytest.mark.parametrize("place", ["growth_5%.csv", "a [raw].csv", "100%/rows.csv"])
def test_one_file_whose_path_no_source_can_have_is_copied(sources: Path, place: str) -> None:
    write(sources / place, [START + timedelta(hours=3 * n) for n in range(80)])
    assert new(sources / place) == 0
    assert path_of(sources) == "cars/rows.parquet"


def test_files_whose_names_no_source_can_have_are_refused_and_nothing_is_written(
    sources: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_months(sources / "cars", ending=" [raw]")
    assert new(sources / "cars") == 1
    said = capsys.readouterr().err
    assert "cars/2024-01 [raw].csv holds '[', which the path of a source cannot have" in said
    assert not (sources.parent / "PIPELINES" / "cars").exists()


def test_files_whose_column_holds_days_and_no_times_are_one_table(
    sources: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for day in (START.date() + timedelta(days=n) for n in range(12)):
        rows = [{"car": f"{day} {n}", "day": day, "speed": n / 2, "late": n % 2} for n in range(20)]
        pl.DataFrame(rows).write_parquet(sources / f"{day}.parquet")
    assert new(sources) == 0
    assert path_of(sources) == "*.parquet"
    assert "day holds days, and partitions need times: the files are" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("zone", "path"),
    [("Europe/Lisbon", "cars/*.csv"), ("Asia/Tokyo", "cars/{partition:%Y-%m-%d-%H}.csv")],
)
def test_hours_of_a_zone_whose_clock_changes_are_one_table(
    sources: Path, capsys: pytest.CaptureFixture[str], zone: str, path: str
) -> None:
    for hour in (START + timedelta(hours=n) for n in range(12)):
        times = [hour + timedelta(minutes=2 * n) for n in range(30)]
        write(sources / "cars" / f"{hour:%Y-%m-%d-%H}.csv", times)
    assert new(sources / "cars", "--timezone", zone) == 0
    assert path_of(sources) == path
    told = f"an hour comes twice in {zone} when the clocks go back" in capsys.readouterr().out
    assert told is (path == "cars/*.csv")
