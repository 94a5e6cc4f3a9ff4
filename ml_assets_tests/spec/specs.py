"""A whole spec, its parts, and what is said of one that is changed."""

import copy
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from ml_assets.settings import SHOWN_AFTER_DEMO
from ml_assets.spec.pipeline import PipelineSpec

Raw = dict[str, Any]

CODE_LM = SHOWN_AFTER_DEMO / "code" / "code_lm" / "defs.yaml"

FILES: Raw = {
    "kind": "files",
    "path": "landing/orders/{partition}.csv",
    "format": "csv",
    "columns": {"order": "int64", "shop": "string", "placed": "datetime"},
    "key": ["order"],
    "contract": "contracts/orders.json",
}
REFERENCES: Raw = {
    **FILES,
    "format": "binary",
    "path": "images/{partition}/*.jpg",
    "columns": {"path": "string", "bytes": "int64"},
    "key": ["bytes"],
}
EVENTS: Raw = {
    "kind": "events",
    "path": "events/returns/{partition}.jsonl",
    "columns": {"order": "int64", "seen": "datetime"},
    "key": ["order"],
    "contract": "contracts/returns.json",
    "known_at": "seen",
}
SQL: Raw = {
    "kind": "sql",
    "connection": "WAREHOUSE",
    "table": "public.stock",
    "columns": {"shop": "string", "counted": "datetime"},
    "key": ["shop", "counted"],
    "contract": "contracts/stock.json",
    "watermark": "counted",
}
RANKING: Raw = {"column": "rank", "task": "ranking", "query": "basket"}
SPEC: Raw = {
    "schema": 1,
    "name": "returns",
    "description": "Will the order come back?",
    "owner": "team:shop",
    "partitions": {"cadence": "weekly", "start": "2024-01-01", "timezone": "Europe/Berlin"},
    "sources": {"orders": FILES, "returns": EVENTS, "stock": SQL},
    "features": {
        "function": "features.py:build",
        "key": ["order"],
        "decision_at": "placed",
        "numeric": ["price"],
        "categorical": ["shop"],
        "look_back": 2,
    },
    "label": {"column": "came_back", "task": "binary"},
    "split": {"kind": "time", "train": 8, "validation": 2, "holdout": 2},
    "model": {"family": "tabm"},
    "training": {"batch_size": 240, "microbatches": 24},
    "evaluation": {"baselines": [{"kind": "constant"}, {"kind": "group_rate", "by": ["shop"]}]},
    "gates": [
        {"kind": "bound", "name": "quality", "metric": "auc", "at_least": 0.6},
        {
            "kind": "baseline",
            "name": "better",
            "metric": "auc",
            "baseline": "group_rate",
            "margin": 0.02,
        },
        {"kind": "leak_alarm", "bound": 0.95},
    ],
}
BOOSTED: Raw = {**SPEC, "model": {"family": "lightgbm"}, "training": {"evaluate_every": 10}}
TENSORS: Raw = {
    **SPEC,
    "model": {
        "family": "module",
        "module": "n.py:build",
        "batch": {"paid": {"columns": ["price"], "shape": [1, 1]}},
    },
}
ROBUST: Raw = {"kind": "robustness", "at_most": 0.1}
SUPERIOR: Raw = {"kind": "champion", "rule": "superior", "min_effect": 0.1}


def changed(raw: Raw, changes: dict[str, Any]) -> Raw:
    """A copy with the value at each ``a.b.0.c`` set, or removed where it is ``...``."""
    whole = copy.deepcopy(raw)
    for path, value in changes.items():
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        here: Any = whole
        for part in parents:
            here = here[part]
        if value is ...:
            del here[last]
        else:
            here[last] = value
    return whole


def refusal(raw: Raw, kind: Any = PipelineSpec) -> str:
    """What is said of a pipeline, or of a part of one, that is refused."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(raw)
    return str(caught.value)
