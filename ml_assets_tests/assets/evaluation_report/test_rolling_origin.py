"""Rolling origin, walked: several holdouts in a row, each by a model that saw nothing later."""

import math
import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from ml_assets.assets.evaluation_report.stored_report import read_report
from ml_assets.assets.released_model.predict import open_release
from ml_assets.cli.main import main
from ml_assets.settings import read_settings
from ml_assets.spec.records import EvaluationReport, StageRecord
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.conftest import Cli

START = datetime(2024, 1, 1, tzinfo=UTC)
DAYS = 14
HOURLY = ["--label", "level", "--time", "at", "--key", "at"]


def hours(days: int) -> pl.DataFrame:
    """A level that goes up and down with the day, and a sensor that half sees it coming."""
    draw = random.Random(3)
    rows = [
        {
            "at": START + timedelta(hours=hour),
            "level": 50 + 9 * math.sin(hour / 24 * math.tau) + draw.gauss(0, 2),
            "sensor": draw.gauss(0, 1),
        }
        for hour in range(24 * days)
    ]
    return pl.DataFrame(rows)


@pytest.fixture
def by_day(room: Path, tmp_path: Path, cli: Cli) -> Path:
    """The spec of a pipeline whose files are days, small enough to be trained often."""
    whole = hours(DAYS).with_columns(pl.col("at").dt.date().alias("day"))
    for day in whole.partition_by("day", include_key=False):
        file = tmp_path / "tide" / f"tide_{day['at'][0]:%Y%m%d}.parquet"
        file.parent.mkdir(exist_ok=True)
        day.write_parquet(file)
    cli("new", "tide", "--from", str(tmp_path / "tide"), *HOURLY, "--ahead", "3h")
    return room / "tide" / "defs.yaml"


def edited(spec: Path, part: str, **changed: Any) -> None:
    """Change keys of one part of what is declared."""
    document = yaml.safe_load(spec.read_text())
    document["attributes"][part].update(changed)
    spec.write_text(yaml.safe_dump(document, sort_keys=False))


def small(spec: Path) -> None:
    """Three origins of two days, with a floor that no model misses."""
    edited(spec, "split", train=2, validation=1, holdout=2)
    edited(spec, "training", epochs=2)
    edited(spec, "evaluation", block="day", origins=3)
    document = yaml.safe_load(spec.read_text())
    document["attributes"]["gates"][0] = {
        "kind": "bound",
        "name": "floor",
        "metric": "skill",
        "at_least": -99,
    }
    spec.write_text(yaml.safe_dump(document, sort_keys=False))


def judged(name: str) -> tuple[EvaluationReport, StageRecord]:
    """The report that was made last, and its record."""
    state = open_pipeline(name, read_settings()).now()
    record = state.record(state.address("evaluation_report"))
    assert record is not None
    return read_report(state), record


def sessions(room: Path) -> set[str]:
    return {one.name for one in (room.parent / "state").glob("**/sessions/*-train-*")}


def test_holdouts_follow_each_other_and_the_release_is_proved_with_them(
    room: Path, by_day: Path, cli: Cli
) -> None:
    small(by_day)
    cli("run", "tide")
    report, record = judged("tide")
    assert report.origins
    origins = report.origins.origins
    days = [f"{START + timedelta(days=n):%Y-%m-%d}" for n in range(DAYS)]
    assert [one.holdout for one in origins] == [
        (days[-6], days[-5]),
        (days[-4], days[-3]),
        (days[-2], days[-1]),
    ]
    assert all(one.trained_on[1] < one.holdout[0] for one in origins)
    assert origins[-1].model == report.model
    assert origins[-1].metrics == report.metrics
    assert len({one.model for one in origins}) == 3
    values = [one.metrics["rmse"].value for one in origins]
    assert report.origins.mean["rmse"].value == pytest.approx(sum(values) / 3)
    assert record.attributes["origins"]["trainings"] == 2
    assert record.attributes["origins"]["seconds"] > 0
    read = {one.partition for one in record.inputs if one.key == "tide/feature_set"}
    assert origins[0].trained_on[0] in read, "what the earlier models were made of is written down"
    assert "DIFFERS" not in cli("release", "verify", "tide").out
    assert "DIFFERS" not in cli("release", "prove", "tide").out

    tomorrow = hours(DAYS + 1).tail(24).head(2)
    found = open_release("tide").predict(tomorrow)
    assert found["predicted_for"].to_list() == [
        at + timedelta(hours=3) for at in tomorrow["at"].to_list()
    ]
    assert found["prediction"].null_count() == 0

    trained = sessions(room)
    edited(by_day, "evaluation", origins={"count": 3, "judge": "worst"})
    cli("run", "tide")
    assert sessions(room) == trained, "what was trained is not trained again"
    cli("models", "report", "tide")
    (file,) = (room.parent / "state").glob("**/reports/tide/*.html")
    page = file.read_text()
    assert "Rolling origin" in page
    assert "at the worst of 3 origins" in page
    assert "It took 2 more trainings" in page

    edited(by_day, "evaluation", origins=9)
    assert "of the 9 origins asked for could be judged" in cli("run", "tide", code=3).err


def test_a_table_that_is_read_whole_rolls_back_by_shares(
    room: Path, tmp_path: Path, cli: Cli
) -> None:
    hours(20).write_parquet(tmp_path / "tide.parquet")
    cli("new", "tide", "--from", str(tmp_path / "tide.parquet"), *HOURLY)
    edited(room / "tide" / "defs.yaml", "training", epochs=1)
    edited(room / "tide" / "defs.yaml", "evaluation", block="day", origins={"count": 3})
    assert main(["run", "tide"]) in (0, 3)
    report, _ = judged("tide")
    assert report.origins
    origins = report.origins.origins
    assert len(origins) == 3
    assert report.origins.missing == ""
    assert all(abs(one.rows - report.rows) <= 1 for one in origins)
    held = [one.holdout for one in origins]
    assert all(one[1] < later[0] for one, later in pairwise(held))
    assert all(one.trained_on[1] < one.holdout[0] for one in origins)
