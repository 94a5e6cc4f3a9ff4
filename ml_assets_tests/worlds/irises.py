"""A pipeline that is not flights: Fisher's irises, multiclass, one CSV, no partitions."""

import json
from pathlib import Path

SPEC = """\
type: ml_assets.component.TrainingPipeline
attributes:
  schema: 1
  name: irises
  description: Which of three species an iris belongs to (Fisher, 1936).
  owner: team:botany
  sources:
    flowers:
      kind: files
      path: irises.csv
      format: csv
      partitioned: false
      columns:
        flower: int64
        sepal_length: float64
        sepal_width: float64
        petal_length: float64
        petal_width: float64
        measured_at: datetime
        species: string
      key: [flower]
      contract: flowers.json
  features:
    function: features.py:build
    key: [flower]
    decision_at: measured_at
    numeric: [sepal_length, sepal_width, petal_length, petal_width]
    subject: {source: flowers}
  label: {column: species, task: multiclass, classes: [setosa, versicolor, virginica]}
  split: {kind: random, validation: 0.2, holdout: 0.3}
  model: {family: mlp, width: 32, depth: 2}
  training:
    epochs: 30
    batch_size: 24
    microbatches: 12
    learning_rate: 0.01
    evaluate_every: 20
    patience: 50
    strategy: replicate
    processes: 1
  evaluation:
    block: row
    bootstrap_samples: 200
    baselines:
      - {kind: constant}
  gates:
    - {kind: bound, name: accuracy_floor, metric: accuracy, at_least: 0.8}
    - {kind: baseline, name: beats_constant, metric: log_loss, baseline: constant, margin: 0.3}
    - {kind: champion}
"""

FEATURES = '''\
"""The four measurements, as they are."""

from collections.abc import Mapping

import polars as pl

from ml_assets.spec.window import Window


def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    return tables["flowers"]
'''

CONTRACT = {
    "name": "flowers",
    "expectations": [
        {
            "type": "expect_column_values_to_not_be_null",
            "kwargs": {"column": "flower"},
            "severity": "critical",
        },
        {
            "type": "expect_column_values_to_be_in_set",
            "kwargs": {"column": "species", "value_set": ["setosa", "versicolor", "virginica"]},
            "severity": "critical",
        },
        {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": "petal_length", "min_value": 0, "max_value": 10},
            "severity": "warning",
        },
    ],
}


def plant(pipelines: Path, sources: Path) -> None:
    """Write the pipeline's folder and its data."""
    folder = pipelines / "irises"
    folder.mkdir(parents=True)
    (folder / "defs.yaml").write_text(SPEC)
    (folder / "features.py").write_text(FEATURES)
    (folder / "flowers.json").write_text(json.dumps(CONTRACT))
    write_flowers(sources)


def write_flowers(sources: Path, species_of_first: str = "setosa") -> None:
    """The real table of 150 flowers; the first one's species can be changed."""
    from sklearn.datasets import load_iris

    data = load_iris()
    names = ["setosa", "versicolor", "virginica"]
    lines = ["flower,sepal_length,sepal_width,petal_length,petal_width,measured_at,species"]
    for number, (row, target) in enumerate(zip(data.data, data.target, strict=True)):
        species = names[target] if number else species_of_first
        cells = [str(number), *(str(value) for value in row), "1936-09-01T00:00:00Z", species]
        lines.append(",".join(cells))
    sources.mkdir(parents=True, exist_ok=True)
    (sources / "irises.csv").write_text("\n".join(lines) + "\n")
