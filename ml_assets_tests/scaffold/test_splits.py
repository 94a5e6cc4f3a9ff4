"""A series in dated files has as many as its past and a split need, or is read as one table."""

import random
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from ml_assets.settings import read_settings
from ml_assets.spec.load import load_spec
from ml_assets.spec.split import TimeSplit
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.conftest import Cli, Said

START = datetime(2024, 1, 1)  # noqa: DTZ001


def write_days(house: Path, days: int, form: str = "%Y-%m-%d") -> None:
    """Sales of two stores, a row a day, a file a day."""
    draw = random.Random(3)
    for day in (START + timedelta(days=n) for n in range(days)):
        rows = [f"{day:%Y-%m-%d},{store},{draw.gauss(900, 90):.1f}" for store in "NS"]
        file = house / "SOURCES" / "shops" / f"{day:{form}}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(["day,store,sales", *rows]) + "\n")


@pytest.fixture
def new(house: Path, cli: Cli) -> Cli:
    def called(pattern: str = "") -> Said:
        what = str(house / "SOURCES" / "shops" / pattern)
        return cli("new", "shops", "--from", what, "--label", "sales", "--ahead", "1d")

    return called


@pytest.mark.parametrize(
    ("form", "path", "through"),
    [
        pytest.param("%Y-%m-%d", "shops/*.csv", "training_set", marks=pytest.mark.daemon),
        ("%Y/%m/%d", "shops/*/*/*.csv", "feature_set"),
    ],
)
def test_files_that_are_too_few_for_their_past_are_one_table(
    house: Path, cli: Cli, form: str, path: str, through: str, new: Cli
) -> None:
    write_days(house, 20, form)
    said = (
        "the past of sales, the splits and what is left out between them need 38 partitions, "
        "and there are 20: the files are read as one table, whose rows are split by time"
    )
    assert said in new().out
    spec = load_spec(house / "PIPELINES" / "shops")
    assert (getattr(spec.sources["rows"], "path", ""), spec.features.look_back) == (path, 0)
    assert spec.split.kind == "time_shares"
    text = (house / "PIPELINES" / "shops" / "defs.yaml").read_text()
    assert "the oldest train; left out: 1 day before validation and before holdout" in text
    cli("run", "shops", "--through", through)


def test_files_of_a_pattern_that_are_too_few_are_read_by_it(house: Path, new: Cli) -> None:
    write_days(house, 20)
    new("202?-01-*.csv")
    source = load_spec(house / "PIPELINES" / "shops").sources["rows"]
    assert getattr(source, "path", "") == "shops/202?-01-*.csv"


def test_files_that_just_suffice_are_partitions(house: Path, new: Cli) -> None:
    write_days(house, 38)
    new()
    spec = load_spec(house / "PIPELINES" / "shops")
    text = (house / "PIPELINES" / "shops" / "defs.yaml").read_text()
    assert "left out: the embargo, before validation and before holdout" in text
    assert isinstance(spec.split, TimeSplit)
    split = spec.split
    taken = split.train + split.validation + split.holdout + 2 * split.embargo
    assert spec.features.look_back + taken == 38


def test_a_look_back_of_more_than_has_landed_is_told(house: Path, cli: Cli, new: Cli) -> None:
    write_days(house, 38)
    new()
    for file in sorted((house / "SOURCES" / "shops").iterdir())[3:]:
        file.unlink()
    said = cli("run", "shops", code=1).err
    assert "look_back needs 31 earlier partitions, and 3 partitions have landed" in said
    state = open_pipeline("shops", read_settings()).now()
    assert not state.record(Address("shops", "feature_set").at("2024-01-03"))
