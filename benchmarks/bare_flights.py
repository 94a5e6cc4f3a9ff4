"""What the demo does, as a bare script: python benchmarks/bare_flights.py WORLD SCRATCH

No Dagster, MLflow, contracts or snapshots: every file is read once, the features of all weeks are
made in one call, the model is trained by the same program with the same processes, and judged by
the same functions, baselines and bootstrap included. Prints its stages and its AUC as JSON.
"""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from ml_assets.assets.evaluation_report.baselines import Rows, score_baseline
from ml_assets.assets.evaluation_report.build_report import Holdout, judge
from ml_assets.assets.evaluation_report.importance import importance, shuffle
from ml_assets.assets.feature_set.feature_function import load_function
from ml_assets.assets.training_set.encoding import encode_rows
from ml_assets.assets.training_set.shards import load_schema
from ml_assets.launch.local.process import environment
from ml_assets.spec.load import load_spec
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import EvaluationReport
from ml_assets.spec.training_program import Ref, Split, TrainOutput, TrainRequest, World
from ml_assets.spec.window import Window
from ml_assets_tests.worlds.shards import write_shards

PIPELINE = Path(__file__).parents[1] / "ml_assets" / "pipelines" / "flight_delays"
ZONE = ZoneInfo("America/New_York")
FIRST_WEEK = datetime(2012, 12, 31, tzinfo=ZONE)
LOOK_BACK = 4
WEEKS: dict[Split, tuple[int, int]] = {
    "train": (4, 37),
    "validation": (38, 42),
    "holdout": (43, 51),
}
"""First and last (exclusive) of 51: 33, 4 and 8 weeks, a week of embargo between them."""
CHUNK = 8192
PYTHON = os.environ.get("BENCHMARK_PYTHON", sys.executable)
"""Of the training's processes, where another tool's interpreter runs these functions."""
NO_LABEL = np.empty(0)
TYPES = {"int64": pl.Int64, "float64": pl.Float64, "string": pl.String, "date": pl.Date}


class Stages:
    """Wall and CPU seconds (children's too) between marks."""

    def __init__(self) -> None:
        self.found: list[tuple[str, float, float]] = []
        self._wall, self._cpu = time.monotonic(), 0.0

    def end(self, name: str) -> None:
        wall, cpu = time.monotonic(), sum(os.times()[:4])
        self.found.append((name, wall - self._wall, cpu - self._cpu))
        self._wall, self._cpu = wall, cpu


def main() -> None:
    world, scratch = Path(sys.argv[1]), Path(sys.argv[2])
    stages = Stages()
    spec = load_spec(PIPELINE)
    stages.end("start")
    tables = read_sources(world, spec)
    stages.end("sources")
    rows = build_features(tables, spec)
    stages.end("features")
    splits = split(rows)
    data = write_set(splits, spec, scratch)
    stages.end("training_set")
    model = train(spec, data, scratch)
    stages.end("train")
    report = evaluate(spec, data, model, splits)
    stages.end("report")
    print_end(report, stages.found)


def print_end(report: EvaluationReport, stages: Sequence[tuple[str, float, float]] = ()) -> None:
    print(json.dumps({"auc": report.metrics["auc"].value, "stages": stages}))


def read_sources(world: Path, spec: PipelineSpec) -> dict[str, pl.LazyFrame]:
    """Every source as a typed table."""
    text = {name: _text_types(spec, name) for name in ("flights", "arrivals", "planes")}
    flights = pl.scan_csv(world / "landing/flights/*.csv", schema_overrides=text["flights"])
    arrivals = pl.scan_ndjson(world / "arrivals/*/*.jsonl", schema=text["arrivals"])
    planes = pl.scan_csv(world / "reference/planes.csv", schema_overrides=text["planes"])
    with closing(sqlite3.connect(world / "weather.db")) as connection:
        columns = list(spec.sources["weather"].columns)
        query = f"select {', '.join(columns)} from weather where wind_speed < 200"
        found = connection.execute(query).fetchall()
    types = {name: pl.Float64 for name in columns[2:]}
    weather = pl.DataFrame(
        found, [("origin", pl.String), ("observed_at", pl.String), *types.items()], orient="row"
    )
    typed = [
        _with_times(frame, spec, name)
        for name, frame in (
            ("flights", flights),
            ("arrivals", arrivals),
            ("weather", weather.lazy()),
        )
    ]
    read = pl.collect_all([*typed, planes])
    return {
        name: frame.lazy()
        for name, frame in zip(("flights", "arrivals", "weather", "planes"), read, strict=True)
    }


def build_features(tables: dict[str, pl.LazyFrame], spec: PipelineSpec) -> pl.DataFrame:
    """One row for each flight after the look-back, in the order of its key."""
    build = load_function(PIPELINE, spec.features.function, spec.name)
    rows = build(tables, Window(None, _week(LOOK_BACK), _week(WEEKS["holdout"][1])))
    features = spec.features
    return (
        rows.select(
            *features.key,
            features.decision_at,
            spec.label.column,
            pl.col(features.numeric).cast(pl.Float64),
            *(name for name in features.categorical if name not in features.key),
        )
        .sort("sched_dep_time", *features.key)
        .collect()
    )


def split(rows: pl.DataFrame) -> dict[Split, pl.LazyFrame]:
    return {name: weeks(rows, *span) for name, span in WEEKS.items()}


def write_set(splits: dict[Split, pl.LazyFrame], spec: PipelineSpec, scratch: Path) -> Ref:
    return write_shards(splits, spec.features, spec.label, scratch / "shards")


def weeks(rows: pl.DataFrame, first: int, end: int) -> pl.LazyFrame:
    return rows.lazy().filter(
        pl.col("sched_dep_time").is_between(_week(first), _week(end), closed="left")
    )


def train(spec: PipelineSpec, data: Ref, scratch: Path) -> Ref:
    """Run the training program as the launcher does, under torchrun."""
    training = spec.training
    output = {name: str(scratch / name) for name in ("checkpoints", "model", "events", "result")}
    request = TrainRequest(
        session="bare",
        attempt=1,
        model=spec.model,
        training=training,
        data=data,
        resume=None,
        output=TrainOutput(**output),
        world=World(procs=training.processes, threads=training.threads),
    )
    file = scratch / "request.json"
    file.write_text(request.model_dump_json())
    torchrun = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--max-restarts=0"]
    program = ["-m", "ml_assets.training", "train", "--request", str(file)]
    world = [f"--nproc-per-node={training.processes}", f"--log-dir={scratch / 'ranks'}"]
    command = [*torchrun, *world, *program]
    subprocess.run(command, check=True, env=environment(training.threads), capture_output=True)
    return Ref.model_validate(json.loads(Path(output["result"]).read_text())["model"])


def evaluate(
    spec: PipelineSpec, data: Ref, model: Ref, splits: dict[Split, pl.LazyFrame]
) -> EvaluationReport:
    """The model and the baselines on the holdout, with their intervals and the importances."""
    labelled = pl.col(spec.label.column).is_not_null()
    frames = {name: rows.filter(labelled).collect() for name, rows in splits.items()}
    schema = load_schema(data)
    names: tuple[Split, ...] = ("train", "holdout")
    parts = {name: [encode_rows(frames[name], schema.preprocessing)] for name in names}
    train, held = (Rows.of(spec.label, frames[name], parts[name].copy) for name in names)
    baselines = {
        b.name: score_baseline(b, train, held, spec.label) for b in spec.evaluation.baselines
    }
    predict = load_predictor(model, spec.training.threads)
    holdout = Holdout.of(spec, frames["holdout"], ("", ""))
    shuffled = shuffle(spec, frames["holdout"])
    copies = predict(*encode_rows(shuffled.stacked, schema.preprocessing))
    return judge(
        spec,
        model=model.digest,
        data=data.digest,
        holdout=holdout,
        predictions=predict(*parts["holdout"][0]),
        baselines=baselines,
        champion=None,
        size_bytes=sum(f.stat().st_size for f in Path(model.uri).iterdir()),
        importance=importance(spec, holdout, shuffled, copies),
    )


def load_predictor(model: Ref, threads: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """(numeric, categorical) of rows -> [n, outputs] probabilities of the exported weights."""
    from ml_assets.training import weights
    from ml_assets.training.model_folder import open_model
    from ml_assets.training.rows.arrays import Rows

    predict = weights.load_predictor(Path(model.uri), open_model(model), threads)

    def in_chunks(numeric: np.ndarray, categorical: np.ndarray) -> np.ndarray:
        starts = range(0, len(numeric), CHUNK)
        rows = (Rows(numeric[a : a + CHUNK], categorical[a : a + CHUNK], NO_LABEL) for a in starts)
        return np.concatenate([predict(chunk) for chunk in rows])

    return in_chunks


def _week(number: int) -> datetime:
    return (FIRST_WEEK + timedelta(weeks=number)).astimezone(UTC)  # midnight, summer and winter


def _text_types(spec: PipelineSpec, source: str) -> dict[str, type[pl.DataType]]:
    columns = spec.sources[source].columns
    return {name: TYPES.get(dtype, pl.String) for name, dtype in columns.items()}


def _with_times(frame: pl.LazyFrame, spec: PipelineSpec, source: str) -> pl.LazyFrame:
    times = [name for name, dtype in spec.sources[source].columns.items() if dtype == "datetime"]
    text = pl.col(times).str.strip_suffix("Z")
    return frame.with_columns(text.str.to_datetime(time_unit="us").dt.replace_time_zone("UTC"))


if __name__ == "__main__":
    main()
