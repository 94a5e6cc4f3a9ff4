"""The text of a new pipeline's spec."""

from collections.abc import Mapping, Sequence
from math import log
from textwrap import wrap

import yaml

from ml_assets.scaffold.labelled_table import LabelledTable
from ml_assets.scaffold.lag_features import (
    categorical,
    first_partitions,
    numeric,
    season,
)
from ml_assets.scaffold.margin import champion_margin
from ml_assets.scaffold.splits import partitions_of_splits
from ml_assets.spec.automation import duration_text
from ml_assets.spec.gates import MetricName
from ml_assets.spec.sources import COMMAS
from ml_assets.spec.training import Task

_BATCHES = 12
"""Global steps in an epoch, about: enough to learn from, few enough to be quick."""
_WIDTH = 86
_COMPARED: Mapping[Task, tuple[MetricName, str]] = {
    "binary": ("log_loss", "margin: {margin}"),
    "multiclass": ("log_loss", "margin: {margin}"),
    "regression": ("rmse", "metric: rmse, margin: {margin}, relative: true"),
    "ranking": ("ndcg", "metric: ndcg, margin: {margin}"),
}
"""What the gates compare with the baseline, and what with the champion, and how."""
_MANY, _EVEN = 1000, 0.9
"""Rows of a table, and the largest share of a class, where accuracy tells too good from good."""
_TOO_SURE = 0.01
"""The share of the constant's log-loss that no model of a few rows stays below."""


MODEL = "{family: mlp, width: 64, depth: 2}"
OWN_MODEL = "{family: module, module: network.py:build, config: {width: 64, depth: 2}}"


def defs_yaml(name: str, table: LabelledTable, zone: str, model: str) -> str:
    """The spec: what a reader changes first has a comment.

    Args:
        zone: of days and weeks, and of times that are written without one.
        model: the part of the spec, as YAML on one line.
    """
    batch = min(3072, max(48, table.frame.height // _BATCHES // 24 * 24))
    own = "" if model == MODEL else f"microbatches: {_microbatches(batch)}, "
    left_out = table.names("left out")
    note = f"  # left out: {' '.join(_pieces(left_out))[1:-1]}" if left_out else ""
    back, counts = first_partitions(table), partitions_of_splits(table)
    return f"""\
# ml-assets check {name}; ml-assets run {name}. Defaults: docs/add-a-pipeline.md
type: ml_assets.component.TrainingPipeline
attributes:
  name: {name}
  description: {_scalar(f"Predicts {table.label} for each row.")} # say for whom, and why
  owner: team:{name}
{_partitions(table, zone)}\
  sources:
    rows:
{_source(name, table, zone)}
      columns: {_flow({column.name: column.dtype for column in table.columns})}
      key: {_flow(list(table.key))}
{_known_at(table)}      contract: contracts/rows.json
  features:
    function: features.py:build
    key: {_flow(list(table.key))}
    decision_at: {_flow(table.decision_at)} # when the prediction is made: nothing later may be used
    numeric: {_flow(numeric(table))}{note}
    categorical: {_flow(categorical(table))}
{_look_back(back)}    subject: {_subject(table)} # whose rows `ml-assets predict` takes
  label: {_flow(_label(table))}
  split: {_split(table, counts)}
{_leaks(table)}\
  model: {model}
  training: {{epochs: 20, batch_size: {batch}, {own}evaluate_every: 20, processes: 1}} # rows, steps
  evaluation: {_flow(_evaluation(table))}
  gates: # a model that fails one reaches no stage
{_gates(table, counts.get("holdout", 0))}
    - {{kind: latency}}
"""


def _microbatches(batch: int) -> int:
    """As many as leave each 16 rows, which a batch norm needs."""
    return next(n for n in (24, 12, 8, 6, 4, 3, 2, 1) if batch // n >= 16)


def _partitions(table: LabelledTable, zone: str) -> str:
    calendar = table.given.calendar
    if calendar is None:
        return ""
    fields: dict[str, object] = {"cadence": calendar.cadence, "start": _Bare(calendar.keys[0][:10])}
    if zone != "UTC":
        fields["timezone"] = zone
    if calendar.day_offset:
        fields["day_offset"] = calendar.day_offset
    return f"  partitions: {_flow(fields)} # each is read, checked and versioned on its own\n"


def _source(name: str, table: LabelledTable, zone: str) -> str:
    given = table.given
    source = dict(given.source)
    if given.rows:
        source = {"kind": "files", "path": f"{name}/rows.parquet", "format": "parquet"}
    comments = {"path": " # below ML_ASSETS_SOURCES"}
    lines = [f"{key}: {_flow(value)}{comments.get(key, '')}" for key, value in source.items()]
    if given.calendar is None:
        lines.append("partitioned: false # true where its path holds {partition}: a day, a month")
    if given.dialect != COMMAS:
        written = given.dialect.model_dump(exclude_defaults=True)
        lines.append(f"dialect: {_flow(written)} # how the files are written")
    if len(given.null_values) > 1:
        lines.append(f'null_values: {_flow(list(given.null_values))} # they mean "no value"')
    if given.zoneless:
        lines.append(f"timezone: {_flow(zone)} # of times that are written without their zone")
    return "\n".join(f"      {line}" for line in lines)


def _known_at(table: LabelledTable) -> str:
    if not (table.moments and table.moments.is_series):
        return ""
    return f"      known_at: {_flow(table.moments.time)} # when a row became known\n"


def _look_back(partitions: int) -> str:
    said = "earlier partitions that the function reads"
    return f"    look_back: {partitions} # {said}\n" if partitions else ""


def _subject(table: LabelledTable) -> str:
    if table.given.calendar is None or table.moments is None:
        return "{source: rows}"
    return _flow({"source": "rows", "time": table.moments.time})


def _label(table: LabelledTable) -> dict[str, object]:
    label: dict[str, object] = {"column": table.label, "task": table.task}
    if table.predicted.classes:
        label["classes"] = list(table.predicted.classes)
    if table.ahead:
        label["ahead"] = duration_text(table.ahead)
    return label


def _split(table: LabelledTable, counts: Mapping[str, int]) -> str:
    if table.moments is None and not counts:
        return "{kind: random} # by chance; for rows that have a time: {kind: time}"
    if not counts:
        said = "shares of the rows: the oldest train"
        if table.ahead:
            said += f"; left out: {duration_text(table.ahead)} before validation and before holdout"
        return f"{{kind: time, validation: 0.15, holdout: 0.2}} # {said}"
    said = (
        "in partitions, oldest first; left out: the embargo, before validation and before holdout"
    )
    return f"{_flow({'kind': 'time', **counts})} # {said}"


def _leaks(table: LabelledTable) -> str:
    """One feature alone is held to less than the model: of classes it is by default."""
    if table.task != "binary":
        return ""
    return "  leaks: {target_proxy: {bound: 0.95}} # the AUC that one feature alone may reach\n"


def _evaluation(table: LabelledTable) -> dict[str, object]:
    kinds: list[dict[str, object]] = [{"kind": "constant"}, {"kind": "gradient_boosting"}]
    if _is_forecast(table) and table.ahead:
        kinds[0] = {"kind": "persistence"}
        if wave := season(table):
            kinds.append({"kind": "seasonal_naive", "season": duration_text(wave)})
    by_row = {} if table.moments else {"block": "row"}
    simple = {"baseline": "gradient_boosting", "min_effect": 0.0}
    return {**by_row, "baselines": kinds, "simple_model": simple}


def _gates(table: LabelledTable, held_out: int) -> str:
    metric, compared = _COMPARED[table.task]
    margin = champion_margin(table, held_out)
    champion = compared.format(margin=f"{margin.value:g}")
    beaten = "persistence" if _is_forecast(table) else "constant"
    rule = "margin: a new model must be shown to be less than this much worse than the champion"
    lines = wrap(f"{rule}; {margin.said}", _WIDTH, break_on_hyphens=False)
    return (
        f"    - {{kind: baseline, name: beats_{beaten}, metric: {metric}, baseline: {beaten}}}\n"
        + "".join(f"    # {line}\n" for line in lines)
        + f"    - {{kind: champion, rule: non_inferior, {champion}}}\n"
        + f"    - {_flow(_alarm(table))} # past it, a feature knows the label"
    )


def _alarm(table: LabelledTable) -> dict[str, object]:
    """The gate against leaks, at what no honest model of such a table is expected to reach."""
    metric, bound = "r2", 0.99
    if table.task == "binary":
        metric, bound = "auc", 0.995
    elif table.task == "multiclass":
        metric, bound = _alarm_of_classes(table)
    elif _is_forecast(table):
        metric = "skill"  # the level of a series says most of its next value: R² is near 1
    return {"kind": "leak_alarm", "metric": metric, "bound": bound}


def _alarm_of_classes(table: LabelledTable) -> tuple[MetricName, float]:
    """Accuracy; where a few rows are all right by luck, or one class is the most, log-loss."""
    counts = table.frame[table.label].drop_nulls().unique_counts().to_list()
    shares = [count / sum(counts) for count in counts]
    if table.frame.height >= _MANY and max(shares) <= _EVEN:
        return "accuracy", 0.998
    return "log_loss", float(f"{-_TOO_SURE * sum(rate * log(rate) for rate in shares):.2g}")


def _is_forecast(table: LabelledTable) -> bool:
    return table.ahead is not None and table.task == "regression"


class _Bare(str):
    """Text that stands in YAML as it is: a date."""

    __slots__ = ()


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
    if isinstance(value, _Bare):
        return str(value)
    # as the item of a list: so what cannot stand bare in one is quoted
    lines = isinstance(value, str) and len(value.splitlines()) > 1
    listed = yaml.safe_dump(
        [value],
        default_flow_style=True,
        width=float("inf"),
        allow_unicode=True,
        default_style='"' if lines else None,
    )
    return listed.strip()[1:-1]
