"""A small partitioned pipeline: weekly orders, their arrivals as events, and the depots.

Late deliveries depend on the depot, the load and the depot's own recent delays, so there is
something to learn, and something that would leak.
"""

import json
import os
import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

WEEKS = 12
ORDERS = 240
BAD_ROWS = 1
START = datetime(2024, 1, 1, tzinfo=UTC)

SPEC = """\
type: ml_assets.component.TrainingPipeline
attributes:
  schema: 1
  name: deliveries
  description: Whether an order arrives late.
  owner: team:logistics
  partitions: {cadence: weekly, start: 2024-01-01, end: 2024-03-25, day_offset: 1}
  sources:
    orders:
      kind: files
      path: orders/{partition}.csv
      format: csv
      columns: {order: int64, depot: string, load: float64, ordered_at: datetime}
      key: [order]
      contract: orders.json
      volume: {within: 0.2}
    arrivals:
      kind: events
      path: arrivals/{partition}.jsonl
      columns: {order: int64, late: boolean, arrived_at: datetime}
      key: [order]
      known_at: arrived_at
      contract: arrivals.json
    depots:
      kind: files
      path: depots.csv
      format: csv
      partitioned: false
      columns: {depot: string, docks: int64}
      key: [depot]
      contract: depots.json
  tables:
    closed_orders: {function: tables.py:closed_orders, reads: [orders, arrivals], key: [order]}
  features:
    function: features.py:build
    key: [order]
    decision_at: ordered_at
    numeric: [load, docks, recent_late]
    categorical: [depot]
    look_back: 1
    subject: {source: orders, time: ordered_at}
  label: {column: late, task: binary}
  split: {kind: time, train: 6, validation: 1, holdout: 2, embargo: 1}
  model: {family: tabm, width: 16, depth: 1, members: 4}
  training:
    epochs: 6
    batch_size: 96
    microbatches: 12
    learning_rate: 0.01
    evaluate_every: 20
    patience: 20
    strategy: shard
    processes: 2
  evaluation:
    bootstrap_samples: 200
    slices: [depot]
    baselines:
      - {kind: constant}
      - {kind: group_rate, name: depot_rate, by: [depot]}
      - {kind: gradient_boosting, iterations: 20}
  gates:
    - {kind: bound, name: quality_floor, metric: auc, at_least: 0.55}
    - {kind: baseline, name: beats_constant, metric: log_loss, baseline: constant}
    - {kind: champion}
    - {kind: leak_alarm, bound: 0.99}
    - {kind: size, at_most_mb: 5}
    - {kind: latency}
"""

FEATURES = '''\
"""What is known when an order is placed: its load, its depot, and the depot's recent delays."""

from collections.abc import Mapping

import polars as pl

from ml_assets.spec.window import Window


def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    orders = tables["orders"].filter(
        pl.col("ordered_at").is_between(window.start, window.end, closed="left")
    )
    recent = (
        tables["closed_orders"]
        .filter(pl.col("arrived_at") < window.start)
        .group_by("depot")
        .agg(pl.col("late").cast(pl.Float64).mean().alias("recent_late"))
    )
    return (
        orders.join(tables["arrivals"].select("order", "late"), on="order", how="left")
        .join(tables["depots"], on="depot", how="left")
        .join(recent, on="depot", how="left")
        .with_columns(pl.col("docks").cast(pl.Float64))
    )
'''

TABLES = '''\
"""A table between the contracts and the features: the orders of a week that have arrived."""

from collections.abc import Mapping

import polars as pl

from ml_assets.spec.window import Window


def closed_orders(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    arrivals = tables["arrivals"].select("order", "late", "arrived_at")
    return tables["orders"].join(arrivals, on="order")
'''


def plant(
    pipelines: Path,
    sources: Path,
    *,
    weeks: int = WEEKS,
    automation: str | None = None,
    drift: str | None = None,
) -> None:
    """Write the pipeline's folder and its data; the same at every call.

    Args:
        weeks: how many have landed; more than 12 need ``automation``.
        automation: that part of the spec, as YAML in one line; the partitions then go on.
        drift: likewise.
    """
    folder = pipelines / "deliveries"
    folder.mkdir(parents=True)
    spec = SPEC
    if automation is not None:
        spec = spec.replace("end: 2024-03-25", "end: 2024-05-06")
        spec += f"  automation: {automation}\n"
    if drift is not None:
        spec += f"  drift: {drift}\n"
    (folder / "defs.yaml").write_text(spec)
    (folder / "features.py").write_text(FEATURES)
    (folder / "tables.py").write_text(TABLES)
    load = {"column": "load", "min_value": 0, "max_value": 100, "mostly": 0.99}
    contracts = {
        "orders": [_not_null("depot"), _expect("expect_column_values_to_be_between", **load)],
        "arrivals": [_not_null("late")],
        "depots": [_expect("expect_column_values_to_be_unique", column="depot")],
    }
    for name, expectations in contracts.items():
        suite = {"name": name, "expectations": expectations}
        (folder / f"{name}.json").write_text(json.dumps(suite))
    land(sources, weeks)


def _expect(kind: str, **arguments: object) -> dict[str, object]:
    return {"type": kind, "kwargs": arguments, "severity": "critical"}


def _not_null(column: str) -> dict[str, object]:
    return _expect("expect_column_values_to_not_be_null", column=column)


def land(sources: Path, weeks: int, *, heavy: frozenset[int] = frozenset()) -> None:
    """The first ``weeks`` weeks: what is there already is written again as it was.

    Args:
        heavy: weeks (from 0) whose orders all weigh more than half of the most.
    """
    for folder in ("orders", "arrivals"):
        (sources / folder).mkdir(parents=True, exist_ok=True)
    deliver(sources / "depots.csv", "depot,docks\nnorth,4\nsouth,2\nwest,9\n", START)
    draw = random.Random(7)
    for week in range(weeks):
        begin = START + timedelta(weeks=week)
        orders, arrivals = _week(draw, begin, first=week * ORDERS, heavy=week in heavy)
        name = begin.date().isoformat()
        header = "order,depot,load,ordered_at\n"
        end = begin + timedelta(weeks=1)
        deliver(sources / "orders" / f"{name}.csv", header + "\n".join(orders) + "\n", end)
        deliver(sources / "arrivals" / f"{name}.jsonl", "\n".join(arrivals) + "\n", end)


def move_orders_to_sql(folder: Path, sources: Path) -> None:
    """The orders that have landed as files are the rows of a table instead."""
    spec = (folder / "defs.yaml").read_text()
    table = "kind: sql\n      connection: ORDERS\n      table: orders\n      watermark: ordered_at"
    files = "kind: files\n      path: orders/{partition}.csv\n      format: csv"
    (folder / "defs.yaml").write_text(spec.replace(files, table))
    rows = [
        line.split(",")
        for file in sorted((sources / "orders").glob("*.csv"))
        for line in file.read_text().splitlines()[1:]
    ]
    with closing(sqlite3.connect(sources / "orders.db")) as connection, connection:
        connection.execute(
            "CREATE TABLE orders"
            ' ("order" BIGINT, depot VARCHAR, load REAL, ordered_at DATETIME NOT NULL)'
        )
        told = "strftime('%Y-%m-%d %H:%M:%S.000000', ?)"
        connection.executemany(f"INSERT INTO orders VALUES (?, ?, ?, {told})", rows)


def deliver(file: Path, text: str, at: datetime | None = None) -> None:
    """Write a file of ``at``, or of an hour ago: nobody waits for the rest of it."""
    file.write_text(text)
    at = at or datetime.now(UTC) - timedelta(hours=1)
    os.utime(file, (at.timestamp(), at.timestamp()))


def _week(
    draw: random.Random, begin: datetime, first: int, *, heavy: bool
) -> tuple[list[str], list[str]]:
    orders: list[str] = []
    arrivals: list[str] = []
    for number in range(first, first + ORDERS):
        depot = draw.choice(["north", "south", "west"])
        load = round(draw.uniform(1, 99), 2)
        load = round(50 + load / 2, 2) if heavy else load
        chance = {"north": 0.2, "south": 0.45, "west": 0.1}[depot] + 0.4 * (load > 70)
        at = begin + timedelta(seconds=draw.randrange(7 * 24 * 3600))
        shown = 5000.0 if number == 5 else load
        orders.append(f"{number},{depot},{shown},{_iso(at)}")
        event = {
            "order": number,
            "late": draw.random() < chance,
            "arrived_at": _iso(at + timedelta(hours=draw.uniform(1, 30))),
        }
        arrivals.append(json.dumps(event))
    return orders, arrivals


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
