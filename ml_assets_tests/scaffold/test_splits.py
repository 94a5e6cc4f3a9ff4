"""A series in dated files has as many as its past and a split need, or is read as one table."""

import random
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from ml_assets.cli.main import main
from ml_assets.settings import read_settings
from ml_assets.spec.load import load_spec
from ml_assets.spec.split import TimeSplit
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import open_pipeline

START = datetime(2024, 1, 1)  # noqa: DTZ001


def write_days(house: Path, days: int, form: str = "%Y-%m-%d") -> None:
    """Sales of two stores, a row a day, a file a day."""
    draw = random.Random(3)
    for day in (START + timedelta(days=n) for n in range(days)):
        rows = [f"{day:%Y-%m-%d},{store},{draw.gauss(900, 90):.1f}" for store in "NS"]
        file = house / "SOURCES" / "shops" / f"{day:{form}}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(["day,store,sales", *rows]) + "\n")


def new(house: Path, pattern: str = "") -> int:
    what = str(house / "SOURCES" / "shops" / pattern)
    return main(["new", "shops", "--from", what, "--label", "sales", "--ahead", "1d"])


@pytest.mark.parametrize(
    ("form", "path", "through"),
    [
        pytest.param("%Y-%m-%d", "shops/*.csv", "training_set", marks=pytest.mark.daemon),
        ("%Y/%m/%d", "shops/*/*/*.csv", "feature_set"),
    ],
)
def test_files_that_are_too_few_for_their_past_are_one_table(
    house: Path, capsys: pytest.CaptureFixture[str], form: str, path: str, through: str
) -> None:
    write_days(house, 20, form)
    assert new(house) == 0
    said = (
        "the past of sales, the splits and what is left out between them need 38 partitions, "
        "and there are 20: the files are read as one table, whose rows are split by time"
    )
    assert said in capsys.readouterr().out
    spec = load_spec(house / "PIPELINES" / "shops")
    assert (getattr(spec.sources["rows"], "path", ""), spec.features.look_back) == (path, 0)
    assert spec.split.kind == "time_shares"
    text = (house / "PIPELINES" / "shops" / "defs.yaml").read_text()
    assert "the oldest train; left out: 1 day before validation and before holdout" in text
    assert main(["run", "shops", "--through", through]) == 0


def test_files_of_a_pattern_that_are_too_few_are_read_by_it(house: Path) -> None:
    write_days(house, 20)
    assert new(house, "202?-01-*.csv") == 0
    source = load_spec(house / "PIPELINES" / "shops").sources["rows"]
    assert getattr(source, "path", "") == "shops/202?-01-*.csv"


def test_files_that_just_suffice_are_partitions(house: Path) -> None:
    write_days(house, 38)
    assert new(house) == 0
    spec = load_spec(house / "PIPELINES" / "shops")
    text = (house / "PIPELINES" / "shops" / "defs.yaml").read_text()
    assert "left out: the embargo, before validation and before holdout" in text
    assert isinstance(spec.split, TimeSplit)
    split = spec.split
    taken = split.train + split.validation + split.holdout + 2 * split.embargo
    assert spec.features.look_back + taken == 38


def test_a_look_back_of_more_than_has_landed_is_told(
    house: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_days(house, 38)
    assert new(house) == 0
    for file in sorted((house / "SOURCES" / "shops").iterdir())[3:]:
        file.unlink()
    assert main(["run", "shops"]) == 1
    said = capsys.readouterr().err
    assert "look_back needs 31 earlier partitions, and 3 partitions have landed" in said
    state = open_pipeline("shops", read_settings()).now()
    assert not state.record(Address("shops", "feature_set").at("2024-01-03"))
