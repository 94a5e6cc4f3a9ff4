"""The text of a new pipeline's spec and feature function."""

import json
from collections.abc import Mapping, Sequence

import yaml

from ml_assets.scaffold.labelled_table import Table
from ml_assets.spec.gates import MetricName
from ml_assets.spec.training import Task

_BATCHES = 12
"""Global steps in an epoch, about: enough to learn from, few enough to be quick."""
_WIDTH = 76
_COMPARED: Mapping[Task, tuple[MetricName, str]] = {
    "binary": ("log_loss", "margin: 0.01"),
    "multiclass": ("log_loss", "margin: 0.01"),
    "regression": ("rmse", "metric: rmse, margin: 0.01, relative: true"),
    "ranking": ("ndcg", "metric: ndcg, margin: 0.01"),
}
"""What the gates compare with the constant, and what with the champion, and how."""


MODEL = "{family: mlp, width: 64, depth: 2}"
OWN_MODEL = "{family: module, module: network.py:build, config: {width: 64, depth: 2}}"


def defs_yaml(name: str, table: Table, model: str) -> str:
    """The spec: what a reader changes first has a comment."""
    batch = min(3072, max(48, table.frame.height // _BATCHES // 12 * 12))
    metric, champion = _COMPARED[table.task]
    label: dict[str, object] = {"column": table.names("label")[0], "task": table.task}
    if table.classes:
        label["classes"] = list(table.classes)
    left_out = table.names("left out")
    note = f"  # left out: {' '.join(_pieces(left_out))[1:-1]}" if left_out else ""
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
      key: {_flow(list(table.key))}
      contract: contracts/rows.json

  features:
    function: features.py:build
    key: {_flow(list(table.key))}
    decision_at: {_flow(table.decision_at)} # when the prediction is made: nothing later may be used
    numeric: {_flow(table.names("numeric"))}{note}
    categorical: {_flow(table.names("categorical"))}
    subject: {{source: rows}} # whose rows `ml-assets predict` takes

  label: {_flow(label)}
  split: {{kind: random}} # with partitions: time

  model: {model}
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
    imports, body = "", 'return tables["rows"]'
    decided = json.dumps(table.decision_at, ensure_ascii=False)
    if table.names("time") and table.decision_at not in table.frame.columns:
        day = json.dumps(table.names("time")[0], ensure_ascii=False)
        body = (
            "# the table has days: a prediction is made as its day begins\n"
            f'    moment = pl.col({day}).cast(pl.Datetime("us", "UTC"))\n'
            f'    return tables["rows"].with_columns(moment.alias({decided}))'
        )
    elif not table.names("time"):
        imports = "from datetime import UTC, datetime\n"
        body = (
            "# the table has no times: every row is decided at one moment\n"
            '    moment = pl.lit(datetime(2000, 1, 1, tzinfo=UTC), pl.Datetime("us", "UTC"))\n'
            f'    return tables["rows"].with_columns(moment.alias({decided}))'
        )
    return f'''\
"""What {name} knows of a row when it decides."""

from collections.abc import Mapping
{imports}
import polars as pl

from ml_assets.spec.window import Window


def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    """One row per decision: the key, the label, and every feature that the spec names."""
    {body}
'''


def network_py(name: str) -> str:
    """A small network of the team's own: a place to begin."""
    return f'''\
"""The network of {name}. Try it before it is trained: ml-assets check {name} --deep"""

import torch
from torch import nn

from ml_assets.training.models.layers import EntityEmbeddings


class Block(nn.Module):
    """A layer that adds to what comes in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(torch.relu(self.linear(self.norm(x))))


class Network(nn.Module):
    """Numbers and embedded words, through a few blocks."""

    def __init__(self, columns, width: int, depth: int) -> None:
        super().__init__()
        self.embeddings = EntityEmbeddings(columns.cardinalities, limit=16)
        self.first = nn.Linear(len(columns.numeric) + self.embeddings.width, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.last = nn.Linear(width, columns.outputs, bias=False)  # a bias is added for you

    def forward(self, numeric: torch.Tensor, categorical: torch.Tensor) -> torch.Tensor:
        """numeric [n, f] float32, categorical [n, c] int32 -> logits [n, outputs]."""
        x = self.first(torch.cat([numeric, self.embeddings(categorical).to(numeric)], dim=1))
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def build(config, columns) -> nn.Module:
    """Called with model.config of the spec, and what the training set has: see docs/network.md."""
    return Network(columns, **config)
'''


def _flow(value: object) -> str:
    """YAML on one line or, where it is long, on several: broken between items, never in one."""
    lines = [""]
    for piece in _pieces(value):
        if lines[-1] and len(lines[-1]) + len(piece) > _WIDTH:
            lines.append("")
        lines[-1] += f" {piece}" if lines[-1] else piece
    return "\n        ".join(lines)


def _pieces(value: object) -> list[str]:
    if isinstance(value, dict):
        named = [(f"{_scalar(name)}: ", _pieces(held)) for name, held in value.items()]
        return _enclosed("{", [[name + held[0], *held[1:]] for name, held in named], "}")
    if isinstance(value, list):
        return _enclosed("[", [_pieces(item) for item in value], "]")
    return [_scalar(value)]


def _enclosed(begin: str, items: Sequence[Sequence[str]], end: str) -> list[str]:
    if not items:
        return [begin + end]
    pieces = [piece for item in items for piece in (*item[:-1], f"{item[-1]},")]
    pieces[-1] = pieces[-1].removesuffix(",") + end
    return [begin + pieces[0], *pieces[1:]]


def _scalar(value: object) -> str:
    # as the item of a list: so what cannot stand bare in one is quoted
    listed = yaml.safe_dump(
        [value], default_flow_style=True, width=float("inf"), allow_unicode=True
    )
    return listed.strip()[1:-1]
