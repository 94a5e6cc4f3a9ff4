"""A regression: what a flat is let for, from its size and district. One CSV, no partitions.

Rents are 500 + 11 a square metre, half as much again by the river, give or take 60. Some flats are
not let yet: they have no rent.
"""

import json
import random
from pathlib import Path

FLATS = 1600
NOISE = 60.0

SPEC = """\
type: ml_assets.component.TrainingPipeline
attributes:
  schema: 1
  name: rents
  description: What a flat is let for, in euros a month.
  owner: team:housing
  sources:
    flats:
      kind: files
      path: flats.csv
      format: csv
      partitioned: false
      columns: {flat: int64, district: string, size: float64, offered_at: datetime, rent: float64}
      key: [flat]
      contract: flats.json
  features:
    function: features.py:build
    key: [flat]
    decision_at: offered_at
    numeric: [size]
    categorical: [district]
  label: {column: rent, task: regression}
  split: {kind: random, validation: 0.15, holdout: 0.3}
  model: {family: mlp, width: 32, depth: 2, dropout: 0.0}
  training:
    epochs: 30
    batch_size: 96
    microbatches: 12
    learning_rate: 0.01
    evaluate_every: 30
    patience: 20
    strategy: replicate
    processes: 1
  evaluation:
    block: row
    bootstrap_samples: 200
    slices: [district]
    baselines:
      - {kind: constant}
      - {kind: group_rate, name: district_mean, by: [district]}
      - {kind: gradient_boosting, iterations: 50}
  gates:
    - {kind: bound, name: error, metric: rmse, at_most: 80}
    - {kind: bound, name: explained, metric: r2, at_least: 0.9}
    - {kind: baseline, name: beats_district, metric: mae, baseline: district_mean, margin: 50}
    - {kind: champion, metric: rmse, relative: true, margin: 0.05}
    - {kind: leak_alarm, metric: rmse, bound: 40}
"""

FEATURES = '''\
"""The size and the district, as they are offered."""

from collections.abc import Mapping

import polars as pl

from ml_assets.spec.window import Window


def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    return tables["flats"]
'''

CONTRACT = {
    "name": "flats",
    "expectations": [
        {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": "size", "min_value": 10, "max_value": 300},
            "severity": "critical",
        }
    ],
}


def plant(pipelines: Path, sources: Path) -> None:
    """Write the pipeline's folder and its data; the same at every call."""
    folder = pipelines / "rents"
    folder.mkdir(parents=True)
    (folder / "defs.yaml").write_text(SPEC)
    (folder / "features.py").write_text(FEATURES)
    (folder / "flats.json").write_text(json.dumps(CONTRACT))
    sources.mkdir(parents=True, exist_ok=True)
    draw = random.Random(3)
    lines = [_flat(draw, number) for number in range(FLATS)]
    (sources / "flats.csv").write_text("\n".join(["flat,district,size,offered_at,rent", *lines]))


def _flat(draw: random.Random, number: int) -> str:
    district = draw.choice(["river", "station", "hill", "harbour"])
    size = round(draw.uniform(20, 140), 1)
    rent = (500 + 11 * size) * (1.5 if district == "river" else 1.0) + draw.gauss(0, NOISE)
    shown = "" if number % 40 == 0 else f"{rent:.2f}"
    return f"{number},{district},{size},2024-05-01T00:00:00Z,{shown}"
