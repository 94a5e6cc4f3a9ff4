"""A time series from files by month or day: from what lies there to a model, or to a refusal."""

import json
import math
import random
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from ml_assets.assets.feature_set.replay import replay
from ml_assets.settings import read_settings
from ml_assets.spec.gates import LeakAlarm
from ml_assets.spec.load import load_spec
from ml_assets.spec.partitions import windows
from ml_assets.spec.split import TimeSplit
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds.world import edit

START = datetime(2024, 1, 1, tzinfo=UTC)
DAYS = 12
GAP = range(5 * 24 + 3, 5 * 24 + 15)
"""Hours of the sixth day that no file holds."""


@pytest.fixture
def air(tmp_path: Path) -> Path:
    """Hourly values of two stations, a file a day, with a gap, unknown values, and no zone."""
    draw = random.Random(5)
    level = {"north": 60.0, "south": 90.0}
    for day in range(DAYS):
        lines = ["station,time,pm25,temp,cars_count"]
        for hour in range(24):
            at = START + timedelta(days=day, hours=hour)
            for station in level:
                level[station] += 0.2 * (75 - level[station]) + draw.gauss(0, 6)
                if day * 24 + hour in GAP:
                    continue
                pm25 = "NA" if draw.random() < 0.03 else f"{level[station]:.0f}"
                temp = 10 + 5 * math.sin(hour / 24 * math.tau)
                lines.append(f"{station},{at:%Y-%m-%d %H:%M:%S},{pm25},{temp:.1f},{hour * 3}")
        file = tmp_path / "air" / f"air_{START + timedelta(days=day):%Y%m%d}.csv"
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n".join(lines) + "\n")
    return tmp_path / "air"


@pytest.fixture
def new(air: Path, cli: Cli) -> Cli:
    return partial(cli, "new", "air", "--from", str(air), "--label", "pm25", "--ahead", "6h")


def test_what_lies_there_is_found_and_said(room: Path, air: Path, new: Cli) -> None:
    said = new().out
    assert "key: station, time" in said
    assert "label: pm25 6 hours after each row" in said
    assert "series: 2, one for each station, of " in said
    assert "partitions: daily, 2024-01-01 to 2024-01-12, 12 of them" in said
    assert "no value: 'NA'" in said
    assert "time is written without a zone: read as UTC" in said
    spec = load_spec(room / "air")
    source = spec.sources["rows"]
    assert getattr(source, "path", "") == "air/air_{partition:%Y%m%d}.csv"
    assert (source.key, source.known_at) == (("station", "time"), "time")
    assert source.columns["pm25"] == "float64", "whole numbers may have a fraction tomorrow"
    assert source.columns["cars_count"] == "int64", "a count is whole"
    assert (spec.partitions.cadence, str(spec.partitions.start)) == ("daily", "2024-01-01")
    assert isinstance(spec.split, TimeSplit)
    assert (spec.label.column, spec.label.of) == ("pm25_in_6h", "pm25")
    assert {"pm25", "pm25_lag_1h", "pm25_mean_1d"} <= {*spec.features.numeric}
    assert {one.kind for one in spec.evaluation.baselines} >= {"persistence", "seasonal_naive"}
    assert spec.gates[0].name == "beats_persistence"
    assert [gate.metric for gate in spec.gates if isinstance(gate, LeakAlarm)] == ["skill"]


def test_numbered_stores_are_what_a_series_is_of(room: Path, tmp_path: Path, cli: Cli) -> None:
    lines = ["Sales,Customers,Date,Store,Sales_lag_1d"]
    for day in range(60):
        for store in range(1, 6):
            at, sold = START + timedelta(days=day), (day * 7 + store) % 11 + 0.5
            customers = (7 * day + 13 * store) % 101  # they tell the rows of a day apart as well
            lines.append(f"{sold},{customers},{at:%Y-%m-%d},{store},{sold}")
    file = tmp_path / "stores.csv"
    file.write_text("\n".join(lines) + "\n")
    said = cli("new", "air", "--from", str(file), "--label", "Sales", "--ahead", "7d").out
    assert "key: Store, Date" in said
    features = load_spec(room / "air").features
    assert features.key == ("Store", "Date")
    assert {"Sales_lag_1d", "Sales_lag_1d_2"} <= {*features.numeric}, "the table's own stays"


def test_measured_numbers_are_not_what_a_series_is_of(tmp_path: Path, cli: Cli) -> None:
    draws = random.Random(7)
    lines = ["day,temperature,humidity,power"]
    for day in range(60):
        for _ in range(3):
            at = START + timedelta(days=day)
            measured = draws.randrange(-5, 30), draws.randrange(30, 90), draws.random()
            lines.append(f"{at:%Y-%m-%d},{','.join(map(str, measured))}")
    file = tmp_path / "plant.csv"
    file.write_text("\n".join(lines) + "\n")
    new = ["new", "air", "--from", str(file), "--label", "power", "--ahead", "7d"]
    cli(*new, code=1)  # whoever knows the rows says --key


def test_the_contract_that_new_writes_is_the_one_that_is_proposed(
    room: Path, air: Path, cli: Cli, new: Cli
) -> None:
    new()
    proposed = json.loads(cli("data", "contract", "propose", "air", "rows").out)
    assert proposed == json.loads((room / "air" / "contracts" / "rows.json").read_text())
    means = [one for one in proposed["expectations"] if "_mean_" in one["type"]]
    assert [one["kwargs"]["column"] for one in means] == ["pm25", "temp"]
    between = [one for one in proposed["expectations"] if one["type"].endswith("_be_between")]
    assert {one["kwargs"].get("column") for one in between} > {"pm25", "temp", "cars_count"}


def test_a_pattern_names_the_files_of_a_folder_that_are_meant(
    room: Path, air: Path, cli: Cli
) -> None:
    (air / "stations.csv").write_text("station,city\na,Rome\n")
    cli("new", "mixed", "--from", str(air), "--label", "pm25", "--ahead", "6h", code=1)
    cli("new", "air", "--from", f"{air}/air_*.csv", "--label", "pm25")
    source = load_spec(room / "air").sources["rows"]
    assert getattr(source, "path", "") == "air/air_{partition:%Y%m%d}.csv"


def test_a_person_at_a_terminal_is_asked_for_what_no_flag_says(
    room: Path, air: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    answers = {"Your data": str(air), "What should be predicted": "pm25", "How much later": "6h"}
    asked: list[str] = []

    def answer(question: str, **_: object) -> str:
        asked.append(question)
        return next(said for begin, said in answers.items() if begin in question)

    monkeypatch.setattr("ml_assets.cli.new._is_asked", lambda: True)
    monkeypatch.setattr("click.prompt", answer)
    cli("new", "air")
    assert len(asked) == 3
    assert load_spec(room / "air").label.column == "pm25_in_6h"


def test_outcomes_are_of_the_row_so_much_later_and_unknown_ones_are_counted(
    room: Path, air: Path, cli: Cli, new: Cli
) -> None:
    out = str(room.parent / "features.parquet")
    new()
    said = cli("run", "air", "--through", "training_set").out
    assert "is not known: there is no pm25 of the same station 6 hours after them" in said
    cli("data", "read", "air/feature_set", "--output", out)
    rows = pl.read_parquet(out)
    later = rows.select("station", pl.col("time") - timedelta(hours=6), now=pl.col("pm25"))
    both = rows.join(later, on=["station", "time"], how="left", maintain_order="left")
    within = both.filter(pl.col("time") < pl.col("time").max() - timedelta(hours=6))
    assert within["pm25_in_6h"].equals(within["now"], null_equal=True)
    in_the_gap = START + timedelta(hours=GAP.start - 2)
    unknown = rows.filter(pl.col("time") == in_the_gap)["pm25_in_6h"]
    assert unknown.null_count() == len(unknown) == 2


def test_a_holdout_that_ends_early_is_told_by_the_run(
    room: Path, air: Path, cli: Cli, new: Cli
) -> None:
    newest = air / "air_20240112.csv"
    newest.write_text("".join(newest.read_text().splitlines(keepends=True)[:17]))
    new()
    said = cli("run", "air", "--through", "training_set").out
    assert (
        "2024-01-12 of the holdout is not complete: it ends at 2024-01-12 07:00 with 28 rows, "
        "and the partitions before it have 24 to 48"
    ) in said
    assert said.count("is not complete") == 1
    record = open_pipeline("air", read_settings()).now().record(Address("air", "training_set"))
    assert record
    assert len(record.attributes["partial"]) == 1


def test_a_shift_by_rows_is_found(room: Path, air: Path, cli: Cli, new: Cli) -> None:
    new()
    by_rows = 'pl.col("pm25").shift(3).over("station").alias("pm25_lag_3h")'
    edit(
        room / "air" / "features.py",
        ('    lag("pm25", "3h"),\n', ""),
        (
            ".lazy()\n",
            f'.lazy()\n        .sort("station", "time")\n        .with_columns({by_rows})\n',
        ),
    )
    said = cli("run", "air", "--through", "feature_set", code=1)
    assert "when an empty row is at" in said.err
    assert "The function counts rows, not time" in said.err
    assert "'pm25_lag_3h' of" in said.err


def test_a_function_that_takes_no_empty_row_is_told_as_not_tried(
    room: Path, air: Path, cli: Cli, new: Cli
) -> None:
    new()
    file = room / "air" / "features.py"
    edit(file, (".lazy()\n", ".lazy()\n        .map_batches(whole)\n"))
    with file.open("a") as more:
        more.write(
            "\n\ndef whole(rows: pl.DataFrame) -> pl.DataFrame:\n"
            '    if rows["temp"].null_count():\n'
            '        raise ValueError("a row has no temperature")\n'
            "    return rows\n"
        )
    cli("run", "air", "--through", "feature_set")
    state = open_pipeline("air", read_settings()).now()
    newest = windows(state.spec.partitions, START + timedelta(days=DAYS))[-1].key
    rows = state.scan(Address("air", "feature_set").at(newest)).collect()
    found = replay(state, newest, rows.lazy(), random.Random(0))
    assert found.passed
    assert "the same, bit for bit; not tried whether the function counts rows" in found.reason
    assert "a row has no temperature" in found.reason


@pytest.mark.daemon
def test_a_model_that_persistence_beats_is_refused(
    room: Path, air: Path, cli: Cli, new: Cli
) -> None:
    for file in air.glob("*.csv"):  # nothing changes within a day: nothing beats that
        lines = [line.split(",") for line in file.read_text().splitlines()]
        kept = [[*line[:2], str(50 + int(file.stem[-1])), *line[3:]] for line in lines[1:]]
        file.write_text("\n".join(",".join(line) for line in [lines[0], *kept]) + "\n")
    new()
    edit(room / "air" / "defs.yaml", ("epochs: 20", "epochs: 1"))
    said = cli("run", "air", code=3)
    assert "beats_persistence" in said.err
    assert "of persistence" in said.err


def test_a_table_with_times_is_split_by_them(room: Path, tmp_path: Path, cli: Cli) -> None:
    rows = [
        {"id": n, "sold_at": START + timedelta(hours=n), "price": n % 9 + 0.5, "back": n % 3 == 0}
        for n in range(200)
    ]
    pl.DataFrame(rows).write_parquet(tmp_path / "sales.parquet")
    about = ["--from", str(tmp_path / "sales.parquet"), "--label", "back"]
    cli("new", "sales", *about)
    assert load_spec(room / "sales").split.kind == "time_shares"
    cli("run", "sales", "--through", "training_set")


def test_files_too_few_or_with_a_gap_are_one_table(
    room: Path, air: Path, cli: Cli, new: Cli
) -> None:
    (air / "air_20240104.csv").unlink()
    said = new().out
    assert "1 partition is missing, 2024-01-04 for one: the files are read as one table" in said
    source = load_spec(room / "air").sources["rows"]
    assert (source.partitioned, getattr(source, "path", "")) == (False, "air/*.csv")
    cli("run", "air", "--through", "feature_set")


def test_a_table_of_a_database_is_read_where_it_is(
    room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute(
            "CREATE TABLE sales (id INTEGER, sold_at DATETIME, price REAL, back BOOLEAN)"
        )
        rows = [
            (n, f"{START + timedelta(hours=n):%Y-%m-%d %H:%M:%S}.000000", n % 9 + 0.5, n % 3 == 0)
            for n in range(200)
        ]
        database.executemany("INSERT INTO sales VALUES (?, ?, ?, ?)", rows)
    monkeypatch.setenv("ML_ASSETS_SQL_SHOP", f"sqlite:///{tmp_path / 'shop.db'}")
    cli("new", "sales", "--from", "sql:SHOP.sales", "--label", "back")
    spec = load_spec(room / "sales")
    assert (spec.sources["rows"].kind, spec.features.decision_at) == ("sql", "sold_at")
    assert spec.split.kind == "time_shares"
    cli("run", "sales", "--through", "feature_set")


def test_moments_that_come_twice_are_kept_back_and_one_word_among_numbers_is_no_value(
    room: Path, tmp_path: Path, cli: Cli
) -> None:
    draw, folder = random.Random(5), tmp_path / "sensor"
    folder.mkdir()
    for day in range(12):
        lines = ["isig,time,glucose"]
        for minute in range(0, 24 * 60, 15):
            at = START + timedelta(days=day, minutes=minute)
            isig = "nil" if draw.random() < 0.02 else f"{20 + draw.gauss(0, 5):.2f}"
            lines.append(f"{isig},{at:%Y-%m-%d %H:%M:%S},{100 + draw.gauss(0, 9):.0f}")
        lines += lines[5:6] if day == 3 else []
        (folder / f"{START + timedelta(days=day):%Y-%m-%d}.csv").write_text("\n".join(lines) + "\n")
    about = ["--from", str(folder), "--label", "glucose", "--ahead", "2h"]
    said = cli("new", "glucose", *about).out
    assert "key: time\n" in said
    assert "no value: 'nil'" in said and "isig: «nil» is taken for no value" in said
    assert "2 rows share their key with another, those of time 2024-01-04 01:00:00" in said
    assert load_spec(room / "glucose").sources["rows"].columns["isig"] == "float64"
    cli("run", "glucose", "--through", "validated_table")
    assert "2 rows" in cli("data", "quarantine", "show", "glucose").out
    said = cli("new", "glucose", *about, code=1).err
    assert "glucose exists already: choose another name" in said
