"""ml-assets models cost: the use of machines, storage and transfer, and its cost."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from ml_assets.assets.trained_model.cost.money import HOUR, exact
from ml_assets.assets.trained_model.cost.split import PARTS
from ml_assets.cli import options
from ml_assets.cli.output import DONE, aligned
from ml_assets.cli.session import opened, read_each
from ml_assets.errors import counted
from ml_assets.extras.cost.account import Account, Outlook
from ml_assets.extras.cost.bill import NO_JOB, Bought, Expected, Line, Share
from ml_assets.settings import read_settings

if TYPE_CHECKING:
    from fractions import Fraction

    from ml_assets.extras.cost.account import Account, By, Outlook
    from ml_assets.extras.cost.bill import Line

_BY = ("pipeline", "owner", "job", "month")


@click.command
@options.any_pipeline
@click.option(
    "--by",
    type=click.Choice(_BY),
    default="pipeline",
    show_default=True,
    help="What each line adds up.",
)
@options.as_json
def cost(pipeline: str | None, by: "By", as_json: bool) -> int:
    """Show machine hours and their cost, by what they were used for.

    \b
    jobs             trainings, scorings and sanity checks
    node-hours       hours that machines were held, of all of them together
    GPU-hours        hours that their GPUs were held
    useful           share of the node-hours, like the next five: in a result that counts
    recomputed       steps that a later start did again
    stalled          a machine was held, and nothing moved
    queued           no machine was held yet; nobody pays for it
    failed           work without a result
    refused          work on a model that the gates refused
    estimated        node-hours that were forecast (how much more or less it took)
    data hours       hours that the data steps took
    storage a month  the cost of what is stored now, for a month
    cost             of machines, transfer and data steps, in the money of ML_ASSETS_PRICES

    Adds up the node-hours and GPU-hours that every training, scoring and sanity check held, split
    into useful, recomputed, stalled, queued, failed and refused. Compares earlier estimates with
    the actual hours, and shows the content of the stores and the yearly cost of a schedule. Prices
    come from ML_ASSETS_PRICES. Without PIPELINE it covers all of them.
    """
    from ml_assets.extras.cost.account import account
    from ml_assets.spec.load import pipeline_folders

    settings = read_settings()
    if pipeline:
        pipelines, code = [opened(pipeline)], DONE
    else:
        pipelines, code = read_each(sorted(pipeline_folders(settings)), opened)
    found = account(pipelines, settings, by, datetime.now(UTC))
    if as_json:
        print(json.dumps(document(found), indent=2))
        return code
    _tell(found, priced=bool(settings.prices.said()))
    return code


def _tell(found: "Account", *, priced: bool) -> None:
    from ml_assets.assets.trained_model.cost.money import HOUR
    from ml_assets.assets.trained_model.cost.split import PARTS
    from ml_assets.errors import counted
    from ml_assets.extras.cost.bill import NO_JOB

    if not found.lines:
        print("nothing was trained, scored or examined yet; run: ml-assets run PIPELINE")
    else:
        told = ("estimated", "data hours", "storage a month", "cost")
        head = (found.by, "jobs", "node-hours", "GPU-hours", *PARTS, *told)
        lines = [_cells(one, found) for one in [*found.lines, found.total]]
        for row in aligned([head, *lines]):
            print(row)
        print("what the columns are: ml-assets models cost --help")
    if NO_JOB in found.shares and (left := found.shares[NO_JOB]).steps:
        since = _priced(left.time, left.cost)
        print(f"{counted(left.steps, 'data step')} after the last training began: {since}")
    if found.total.unpriced:
        hours = found.total.unpriced / HOUR
        why = "has no price for them" if priced else "is not set"
        print(f"{hours:,.4g} node-hours have no price: ML_ASSETS_PRICES {why}")
    for outlook in found.outlooks:
        for line in _outlook(outlook):
            print(f"{outlook.pipeline}: {line}")
    if found.left_out:
        print(f"not counted: {found.left_out}")


def _cells(one: "Line", found: "Account") -> tuple[str, ...]:
    """With its share of data steps, whose cost is in the last column, and of what lies there."""
    from ml_assets.assets.trained_model.cost.money import HOUR, added, in_words
    from ml_assets.assets.trained_model.cost.split import PARTS
    from ml_assets.extras.cost.bill import Share, share

    owed = found.shares.get(one.name, Share())
    return (
        one.name,
        f"{one.jobs:,}",
        f"{one.node_time / HOUR:,.4g}",
        f"{one.gpu_time / HOUR:,.4g}",
        *(f"{share(one.split, part):.1%}" for part in PARTS),
        _expected(one.expected),
        f"{owed.time / HOUR:,.4g}",
        in_words(owed.storage(found.storage)),
        in_words(added([one.cost, owed.cost])),
    )


def _expected(found: Any) -> str:
    """Node-hours that were estimated, and by how much the trainings took more or less."""
    from ml_assets.assets.trained_model.cost.money import HOUR

    if found is None or found.off_by is None:
        return "–"
    return f"{found.node_time / HOUR:,.4g} ({found.off_by:+.0%})"


def _outlook(one: "Outlook") -> list[str]:
    from ml_assets.assets.trained_model.cost.money import in_words

    said: list[str] = []
    if one.next is not None:
        takes = _priced(one.next.node_time, one.next_cost)
        said.append(f"the next training takes about {takes}")
        said.append(f"  ({one.next.how})")
    if one.year is not None:
        year = one.year
        each, whole = (
            _priced(year.node_time, year.cost),
            _priced(year.node_time_a_year, year.a_year),
        )
        said.append(
            f"its schedule ({year.cron}) is due {counted(year.ticks, 'time')} in a year, each"
            f" {each} (mean of {year.runs}): {whole} a year"
        )
    if one.bytes:
        a_month = f", {in_words(one.storage)} a month" if one.storage is not None else ""
        said.append(f"{one.bytes / 1e9:,.4g} GB lie there{a_month}")
    return said


def _priced(node_time: int, cost: "Fraction | None") -> str:
    """Machine time, and what it costs where a price is known."""
    from ml_assets.assets.trained_model.cost.money import HOUR, in_words

    hours = f"{node_time / HOUR:,.4g} node-hours"
    return hours if cost is None else f"{in_words(cost)} ({hours})"


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
        "pipelines": [_outlook_document(one) for one in found.outlooks],
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
        "estimate": None if one.expected is None else _estimate_document(one.expected),
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


def _estimate_document(one: Expected) -> dict[str, Any]:
    return {
        "jobs": one.jobs,
        "node_seconds": one.node_time / _SECOND,
        "cost": exact(one.cost),
        "actual_node_seconds": one.actual / _SECOND,
        "off_by": one.off_by,
    }


def _outlook_document(one: Outlook) -> dict[str, Any]:
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
