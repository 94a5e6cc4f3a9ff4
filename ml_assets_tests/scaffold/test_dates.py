"""Days and times as they are written elsewhere: found by new, kept in the spec, read so."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from ml_assets.assets.raw_snapshot.readers.read_source import read_source
from ml_assets.assets.raw_snapshot.text_values import TextFormat, parse_text
from ml_assets.spec.load import load_spec
from ml_assets_tests.conftest import Cli, Said

HOURS = [datetime(2023, 12, 25, tzinfo=UTC) + timedelta(hours=3 * n) for n in range(80)]


@pytest.fixture
def made(house: Path, cli: Cli) -> Cli:
    """What ``new`` answers to a table with these times."""

    def called(times: Sequence[str], *flags: str, at: str = "at", code: int = 0) -> Said:
        lines = [f"{time},{n % 7}.5,{n % 2}" for n, time in enumerate(times)]
        (house / "SOURCES" / "rain.csv").write_text("\n".join([f"{at},depth,wet", *lines]) + "\n")
        what = str(house / "SOURCES" / "rain.csv")
        return cli("new", "rain", "--from", what, "--label", "wet", *flags, code=code)

    return called


def times_read(house: Path) -> pl.Series:
    source = load_spec(house / "PIPELINES" / "rain").sources["rows"]
    return read_source("rows", source, house / "SOURCES", lambda name: name, None).frame["at"]


@pytest.mark.parametrize(
    ("form", "said", "dialect"),
    [
        ("%d.%m.%Y %H:%M", "days with the day first", "{dates: dmy}"),
        ("%d/%m/%Y %H:%M:%S", "days with the day first", "{dates: dmy}"),
        ("%m/%d/%Y %H:%M", "days with the month first", "{dates: mdy}"),
        ("%m-%d-%Y %I:%M %p", "days with the month first", "{dates: mdy}"),
        ("%Y/%m/%d %H:%M", "", ""),
        ("%Y.%m.%dT%H:%M:%S", "", ""),
    ],
)
def test_times_are_read_as_they_are_written(
    house: Path, made: Cli, form: str, said: str, dialect: str
) -> None:
    out = made([f"{hour:{form}}" for hour in HOURS]).out
    assert said in out
    assert "at is written without a zone: read as UTC" in out
    assert dialect in (house / "PIPELINES" / "rain" / "defs.yaml").read_text()
    assert times_read(house).to_list() == HOURS


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%Y-%m-%d"])
def test_days_are_read_as_they_are_written(house: Path, form: str, made: Cli) -> None:
    days = [date(2023, 11, 20) + timedelta(days=n) for n in range(60)]
    made([f"{day:{form}}" for day in days])
    assert times_read(house).cast(pl.Date).to_list() == days


def test_what_can_be_the_day_or_the_month_is_asked_and_never_guessed(
    house: Path, made: Cli
) -> None:
    firsts = [f"{n % 12 + 1:02}/01/{2000 + n // 12}" for n in range(60)]
    said = made(firsts, code=1).err
    assert "Does the day or the month come first in 'at' (02/01/2000 for one)?" in said
    assert "--dates dmy (day first) or --dates mdy (month first)" in said
    assert not (house / "PIPELINES" / "rain").exists()
    made(firsts, "--dates", "mdy")
    assert times_read(house)[1].date() == date(2000, 2, 1)


def test_a_person_at_a_terminal_is_asked(
    house: Path, monkeypatch: pytest.MonkeyPatch, made: Cli
) -> None:
    asked: list[str] = []
    answer: Callable[..., str] = lambda question, **_: asked.append(question) or "dmy"  # noqa: E731
    monkeypatch.setattr("ml_assets.cli.new._is_asked", lambda: True)
    monkeypatch.setattr("click.prompt", answer)
    days = [f"{n % 12 + 1:02}/{n // 12 + 1:02}/2000" for n in range(60)]
    made(days, "--ahead", "1d", "--key", "at")
    assert any("the day or the month" in question for question in asked)
    assert times_read(house)[-1].date() == date(2000, 5, 12)


def test_columns_that_are_written_in_two_ways_are_told(house: Path, made: Cli) -> None:
    days = [date(2023, 11, 20) + timedelta(days=n) for n in range(60)]
    both = [f"{day:%d/%m/%Y},{day:%m/%d/%Y}" for day in days]
    said = made(both, at="at,then", code=1).err
    assert "The day comes first in 'at' (31/12/2023), the month in 'then' (12/31/2023)" in said


def test_one_day_of_another_form_makes_the_column_text_and_is_told(house: Path, made: Cli) -> None:
    days = [f"{date(2023, 11, 20) + timedelta(days=n):%d/%m/%Y}" for n in range(60)]
    assert (
        "at is read as text: «12/31/2023» is not a valid day"
        in made([*days, "12/31/2023"], "--key", "at").out
    )


@pytest.mark.parametrize("text", ["23-01-05", "31.12.23", "32.12.2023", "1.13.2023", "2023-1"])
def test_what_is_no_day_is_none(text: str) -> None:
    assert parse_text(pl.Series([text]), "date", TextFormat(dates="dmy")).to_list() == [None]


BERLIN = ZoneInfo("Europe/Berlin")
ALL_YEAR = [datetime(2023, 3, 20) + timedelta(hours=n) for n in range(24 * 14)]  # noqa: DTZ001


def test_hours_that_the_clock_went_over_are_counted_and_a_zone_is_named_that_has_them(
    house: Path, made: Cli
) -> None:
    """A logger that keeps winter time writes an hour that no clock on the wall showed."""
    times = [
        f"{hour:%d.%m.%Y %H:%M}" for at in ALL_YEAR for hour in (at, at + timedelta(minutes=30))
    ]
    said = made(times, "--timezone", "Europe/Berlin", code=1).err
    assert "column 'at': «'26.03.2023 02:00'» does not exist in Europe/Berlin" in said
    assert "(and 1 more such value)" in said
    assert "name a zone whose clock never changes (Etc/GMT-1)" in said
    made(times, "--timezone", "Etc/GMT-1")
    assert times_read(house)[0] == datetime(2023, 3, 19, 23, tzinfo=UTC)


def test_a_source_with_such_an_hour_is_refused_by_its_line(
    house: Path, cli: Cli, made: Cli
) -> None:
    zone = ("--timezone", "Europe/Berlin")
    made([f"{at:%Y-%m-%d %H:%M}" for at in ALL_YEAR if at.day < 26], *zone)
    (house / "SOURCES" / "rain.csv").write_text("at,depth,wet\n2023-03-26 02:00,1.5,1\n")
    said = cli("run", "rain", "--through", "raw_snapshot", code=1).err
    assert "line 2, column 'at': «'2023-03-26 02:00'» does not exist in Europe/Berlin" in said


def test_hours_that_come_twice_are_counted_in_new_and_at_the_reading(
    house: Path, cli: Cli, made: Cli
) -> None:
    autumn = [datetime(2023, 10, 20) + timedelta(hours=n) for n in range(24 * 14)]  # noqa: DTZ001
    times = [f"{at:%Y-%m-%d %H:%M}" for at in autumn]
    said = "1 time of 'at' comes twice in Europe/Berlin, «2023-10-29 02:00» for one"
    assert said in made(times, "--timezone", "Europe/Berlin").out
    assert said in cli("run", "rain", "--through", "raw_snapshot").out
    read = times_read(house).dt.convert_time_zone("Europe/Berlin").to_list()
    assert [at.fold for at in read if (at.day, at.hour) == (29, 2)] == [0], "the first of the two"
    assert read[0] == autumn[0].replace(tzinfo=BERLIN)


@pytest.mark.parametrize(("cadence", "days"), [("daily", 1), ("weekly", 7)])
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_files_that_are_named_by_local_days_are_partitions_of_their_zone(
    house: Path, zone: str, cadence: str, days: int, cli: Cli
) -> None:
    for first in (date(2023, 11, 6) + timedelta(days=days * n) for n in range(12)):
        hours = [datetime.combine(first, time()) + timedelta(hours=n) for n in range(24 * days)]
        rows = [f"{at:%Y-%m-%d %H:%M},{at.hour % 7}.5,{at.hour % 5 % 2}" for at in hours]
        (house / "SOURCES" / f"{first}.csv").write_text("\n".join(["at,depth,wet", *rows]) + "\n")
    what = str(house / "SOURCES")
    cli("new", "rain", "--from", what, "--label", "wet", "--timezone", zone)
    found = load_spec(house / "PIPELINES" / "rain").partitions
    assert (found.cadence, str(found.start), found.timezone) == (cadence, "2023-11-06", zone)
