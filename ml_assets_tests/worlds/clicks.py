"""A nightly ranking: thirty days of searches, each with twelve products, some clicked, few bought.

What is chosen depends on how well a product matches and on its price; where nothing matches well,
nothing is chosen, so some searches have no relevant product at all.
"""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

DAYS = 30
SEARCHES = 30
PRODUCTS = 12
START = datetime(2024, 3, 1, tzinfo=UTC)

SPEC = """\
type: ml_assets.component.TrainingPipeline
attributes:
  schema: 1
  name: clicks
  description: Which products of a search to show first, learned again every night.
  owner: team:search
  partitions: {cadence: daily, start: 2024-03-01, end: 2024-03-31}
  sources:
    shown:
      kind: files
      path: shown/{partition}.csv
      format: csv
      columns:
        item: int64
        search: string
        shown_at: datetime
        match: float64
        price: float64
        brand: string
        grade: int64
      key: [item]
      contract: shown.json
      volume: {within: 0.2} # of the rows of the day before
  features:
    function: features.py:build
    key: [item]
    decision_at: shown_at
    numeric: [match, price]
    categorical: [brand]
  label: {column: grade, task: ranking, query: search}
  split: {kind: time, train: 18, validation: 4, holdout: 6, embargo: 1}
  model: {family: tabm, width: 16, depth: 1, members: 4}
  training:
    epochs: 3
    checkpoint_minutes: 20
    batch_size: 24 # queries
    microbatches: 12
    learning_rate: 0.003
    evaluate_every: 20
    patience: 20
    strategy: shard
    processes: 2
  evaluation:
    ndcg_at: 10
    bootstrap_samples: 200
    slices: [brand]
    baselines:
      - {kind: constant}
      - {kind: group_rate, name: brand_grade, by: [brand]}
      - {kind: gradient_boosting, iterations: 30}
  gates:
    - {kind: bound, name: quality_floor, metric: ndcg, at_least: 0.6}
    - {kind: baseline, name: beats_chance, metric: ndcg, baseline: constant, margin: 0.1}
    - {kind: champion, rule: superior, metric: ndcg, margin: 0.005, relative: true}
    - {kind: leak_alarm, metric: ndcg, bound: 0.98}
  automation:
    refresh: {every: day, at: "02:00"}
"""

FEATURES = '''\
"""What is known of a product when the search is answered."""

from collections.abc import Mapping

import polars as pl

from ml_assets.spec.window import Window


def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    return tables["shown"]
'''

CONTRACT = {
    "name": "shown",
    "expectations": [
        {
            "type": "expect_column_values_to_be_in_set",
            "kwargs": {"column": "grade", "value_set": [0, 1, 2]},
            "severity": "critical",
        }
    ],
}


def plant(pipelines: Path, sources: Path) -> None:
    """Write the pipeline's folder and its data; the same at every call."""
    folder = pipelines / "clicks"
    folder.mkdir(parents=True)
    (folder / "defs.yaml").write_text(SPEC)
    (folder / "features.py").write_text(FEATURES)
    (folder / "shown.json").write_text(json.dumps(CONTRACT))
    (sources / "shown").mkdir(parents=True, exist_ok=True)
    draw = random.Random(11)
    for day in range(DAYS):
        begin = START + timedelta(days=day)
        lines = ["item,search,shown_at,match,price,brand,grade"]
        for search in range(SEARCHES):
            lines += _search(draw, begin, day * SEARCHES + search)
        (sources / "shown" / f"{begin.date()}.csv").write_text("\n".join(lines) + "\n")


def _search(draw: random.Random, day: datetime, number: int) -> list[str]:
    at = (day + timedelta(seconds=draw.randrange(24 * 3600))).strftime("%Y-%m-%dT%H:%M:%SZ")
    lines: list[str] = []
    for place in range(PRODUCTS):
        match, price = draw.random(), round(draw.uniform(5, 50), 2)
        brand = draw.choice(["acme", "bolt", "crane"])
        liking = 4 * match - price / 25 + 0.5 * (brand == "acme") + draw.gauss(0, 0.5)
        grade = 2 if liking > 3 else 1 if liking > 2.2 else 0
        item = number * PRODUCTS + place
        lines.append(f"{item},search-{number:05d},{at},{match:.4f},{price},{brand},{grade}")
    return lines
