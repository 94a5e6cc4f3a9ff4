"""The text of a new pipeline's spec and feature function."""

from collections.abc import Mapping

import yaml

from ml_assets.operations.labelled_table import Table
from ml_assets.spec.gates import MetricName
from ml_assets.spec.training import Task

_BATCHES = 12
"""Global steps in an epoch, about: enough to learn from, few enough to be quick."""
_COMPARED: Mapping[Task, tuple[MetricName, str]] = {
    "binary": ("log_loss", "margin: 0.01"),
    "multiclass": ("log_loss", "margin: 0.01"),
    "regression": ("rmse", "metric: rmse, margin: 0.01, relative: true"),
    "ranking": ("ndcg", "metric: ndcg, margin: 0.01"),
}
"""What the gates compare with the constant, and what with the champion, and how."""


def defs_yaml(name: str, table: Table) -> str:
    """The spec: what a reader changes first has a comment."""
    decided = (table.names("time") or ["decided_at"])[0]
    batch = min(3072, max(48, table.frame.height // _BATCHES // 12 * 12))
    metric, champion = _COMPARED[table.task]
    label: dict[str, object] = {"column": table.names("label")[0], "task": table.task}
    if table.classes:
        label["classes"] = list(table.classes)
    left_out = table.names("left out")
    note = f"  # left out: {', '.join(left_out)}" if left_out else ""
    return f"""\
# Check this file: ml-assets check {name}. Make the pipeline: ml-assets run {name}
type: ml_assets.component.TrainingPipeline
attributes:
  schema: 1
  name: {name}
  description: What {name} predicts, in a sentence.
  owner: team:{name}

  sources:
    rows:
      kind: files # or: events, sql
      path: {name}/rows.parquet # below ML_ASSETS_SOURCES
      format: parquet
      partitioned: false # true: one file a day, week, ... with {{partition}} in its path
      columns:
        {_flow({column.name: column.dtype for column in table.columns})}
      key: {_flow(table.names("key"))}
      contract: contracts/rows.json

  features:
    function: features.py:build
    key: {_flow(table.names("key"))}
    decision_at: {decided} # when the prediction is made: nothing later may be used
    numeric: {_flow(table.names("numeric"))}{note}
    categorical: {_flow(table.names("categorical"))}
    subject: {{source: rows}} # whose rows `ml-assets predict` takes

  label: {_flow(label)}
  split: {{kind: random}} # with partitions: time

  model: {{family: mlp, width: 64, depth: 2}}
  training:
    epochs: 20
    batch_size: {batch}
    microbatches: 12
    evaluate_every: 20
    strategy: replicate # shard: FSDP
    processes: 1

  evaluation:
    block: {"day" if table.names("time") else "row"}
    baselines:
      - {{kind: constant}}
      - {{kind: gradient_boosting}}

  gates: # a model that fails one reaches no stage
    - {{kind: baseline, name: beats_constant, metric: {metric}, baseline: constant}}
    - {{kind: champion, rule: non_inferior, {champion}}}
    - {{kind: latency}}
"""


def features_py(name: str, table: Table) -> str:
    """The feature function: the table as it is; the place for joins and history."""
    if table.names("time"):
        imports, body = "", 'tables["rows"]'
    else:
        imports = "from datetime import UTC, datetime\n"
        body = (
            "# the table has no times: every row is decided at one moment\n"
            "    moment = pl.lit(datetime(2000, 1, 1, tzinfo=UTC), pl.Datetime('us', 'UTC'))\n"
            '    return tables["rows"].with_columns(moment.alias("decided_at"))'
        )
        body = body.replace("'", '"')
    returned = body if imports else f"return {body}"
    return f'''\
"""What {name} knows of a row when it decides."""

from collections.abc import Mapping
{imports}
import polars as pl

from ml_assets.features.window import Window


def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    """One row per decision: the key, the label, and every feature that the spec names."""
    {returned}
'''


def _flow(value: object) -> str:
    """YAML on one line or, where it is long, on several that are indented alike."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=76)
    return text.strip().replace("\n", "\n        ")
