"""The account as one JSON document: times in seconds, money as decimal text, bytes."""

from typing import Any

from ml_assets.assets.trained_model.cost.money import HOUR, exact
from ml_assets.assets.trained_model.cost.split import PARTS
from ml_assets.extras.cost.account import Account, Outlook
from ml_assets.extras.cost.bill import Bought, Expected, Line
from ml_assets.extras.cost.shares import NO_JOB, Share

SCHEMA = 1
_SECOND = 1_000_000


def document(found: Account) -> dict[str, Any]:
    """Everything that is known; what is not is null."""
    lines = [{**_line(one), **_share(found, one.name)} for one in found.lines]
    if found.by == "job":
        for line in lines:
            line["stored_bytes"] = found.by_job.get(line["name"], 0)
    left = found.shares.get(NO_JOB)
    return {
        "schema": SCHEMA,
        "by": found.by,
        "lines": lines,
        "total": {**_line(found.total), **_share(found, "total")},
        "no_job_yet": left and _share(found, NO_JOB),
        "pipelines": [_outlook(one) for one in found.outlooks],
        "left_out": found.left_out or None,
    }


def _line(one: Line) -> dict[str, Any]:
    return {
        "name": one.name,
        "jobs": one.jobs,
        "attempts": one.attempts,
        "node_seconds": one.node_time / _SECOND,
        "gpu_hours": one.gpu_time / HOUR,
        "parts": {
            part: {"node_seconds": one.split[part] / _SECOND, "cost": exact(one.costs.get(part))}
            for part in PARTS
        },
        "price_classes": {name: _bought(bought) for name, bought in one.bought.items()},
        "unpriced_node_seconds": one.unpriced / _SECOND,
        "transfer": {"bytes": one.moved_bytes, "cost": exact(one.transfer)},
        "checkpoint_bytes": one.checkpoint_bytes,
        "cost": exact(one.cost),
        "estimate": None if one.expected is None else _expected(one.expected),
    }


def _share(found: Account, name: str) -> dict[str, Any]:
    own = found.shares.get(name, Share())
    return {
        "data_steps": {
            "steps": own.steps,
            "node_seconds": own.time / _SECOND,
            "cost": exact(own.cost),
        },
        "storage_per_month": exact(own.storage(found.storage)),
    }


def _bought(one: Bought) -> dict[str, Any]:
    return {
        "node_seconds": one.node_time / _SECOND,
        "gpu_hours": one.gpu_time / HOUR,
        "cost": exact(one.cost),
    }


def _expected(one: Expected) -> dict[str, Any]:
    return {
        "jobs": one.jobs,
        "node_seconds": one.node_time / _SECOND,
        "cost": exact(one.cost),
        "actual_node_seconds": one.actual / _SECOND,
        "off_by": one.off_by,
    }


def _outlook(one: Outlook) -> dict[str, Any]:
    coming, year = one.next, one.year
    return {
        "pipeline": one.pipeline,
        "storage": {
            "bytes": one.bytes,
            "by_kind": dict(one.stored),
            "cost_per_month": exact(one.storage),
        },
        "next_training": coming
        and {
            "node_seconds": coming.node_time / _SECOND,
            "cost": exact(one.next_cost),
            "how": coming.how,
        },
        "year": year
        and {
            "cron": year.cron,
            "ticks": year.ticks,
            "runs": year.runs,
            "node_seconds_per_run": year.node_time / _SECOND,
            "cost_per_run": exact(year.cost),
            "cost": exact(year.a_year),
        },
    }
