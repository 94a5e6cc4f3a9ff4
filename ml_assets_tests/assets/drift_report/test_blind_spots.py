"""`ml-assets check` says what of a drift could never alarm, and when there will be enough."""

import re
import shutil
from pathlib import Path

import pytest

from ml_assets.assets.drift_report.columns import FEWEST_PERIODS
from ml_assets.assets.training_set.split import plan_time_split
from ml_assets.errors import WindowError
from ml_assets.scaffold.find_input import FEWEST
from ml_assets.spec.split import TimeSplit
from ml_assets_tests.conftest import Cli

DEMO = Path(__file__).parents[3] / "ml_assets" / "pipelines" / "flight_delays"


@pytest.fixture
def demo(room: Path) -> Path:
    """The spec of a copy of the demo."""
    return shutil.copytree(DEMO, room / "flight_delays") / "defs.yaml"


def test_a_drift_that_sees_is_not_warned_of(demo: Path, cli: Cli) -> None:
    assert "cannot alarm" not in cli("check", "flight_delays").out


def test_a_bound_that_hardly_anything_exceeds_is_warned_of(demo: Path, cli: Cli) -> None:
    bounds = "    bounds: {js: 0.95, loss_rise: 1.51}\n    seasonal:"
    demo.write_text(demo.read_text().replace("    seasonal:", bounds, 1))
    said = cli("check", "flight_delays").out
    assert "warning: drift cannot alarm by js: hardly anything exceeds a bound of 0.95" in said
    assert "remedy: set drift.bounds.loss_rise below 1, or leave it out" in said


def test_too_little_history_says_when_it_will_do(demo: Path, cli: Cli) -> None:
    split = "split: {kind: time, train: 3, validation: 2, holdout: 2, embargo: 1}"
    text, found = re.subn(r"^  split:.*$", f"  {split}", demo.read_text(), flags=re.M)
    assert found == 1
    demo.write_text(text)
    said = cli("check", "flight_delays").out
    assert (
        "drift of features, nulls, categories, domain and labels cannot alarm: split.train is 3"
        in said
    )
    assert "remedy: set split.train to 4: the window is 10 partitions then, and 2013-" in said
    assert (
        "drift of predictions cannot alarm: split.holdout is 2 partitions, and it takes 4" in said
    )


def test_the_page_says_how_many_periods_are_enough_for_what() -> None:
    page = (Path(__file__).parents[3] / "docs" / "add-a-pipeline.md").read_text()
    fewest = TimeSplit(kind="time", train=1, validation=1, holdout=1, embargo=0)
    keys = ["a", "b", "c"]
    assert plan_time_split(fewest, "c", keys, keys).holdout == ("c",)
    with pytest.raises(WindowError):
        plan_time_split(fewest, "c", keys[1:], keys[1:])
    for row in (
        f"| {FEWEST} files | for `new` to make each a partition",
        "| 3 partitions | to train, validate and hold out",
        f"| {FEWEST_PERIODS} in `split.train` | for drift of features, nulls, categories, domain",
        f"| {FEWEST_PERIODS} in `split.holdout` | for drift of predictions |",
    ):
        assert row in page
