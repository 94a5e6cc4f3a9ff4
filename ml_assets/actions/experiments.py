"""Shows the last runs of a pipeline side by side, from their records and the ledger.

The page shows what MLflow cannot: the decision, the model's present stage, the purpose and verdict
of the run, metrics with their intervals on the run's own holdout, cost, data, and what changed
between releases. Each run links to MLflow.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ml_assets.errors import MlAssetsError, counted
from ml_assets.load_extras import drawing_on
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import moves
from ml_assets.records.model_changes import differences
from ml_assets.records.recent_runs import LAST, by_model, candidate, rows
from ml_assets.records.tracking.links import EXPERIMENTS_PAGE, Links
from ml_assets.reports import page as pages
from ml_assets.reports.picture import Picture
from ml_assets.reports.run_rows import ReleaseStep, Row, plain_loss, span
from ml_assets.reports.wording import digits, order, title
from ml_assets.settings import Settings
from ml_assets.store.pipeline_context import Pipeline, open_pipeline

SCHEMA = 1


def page(pipeline: Pipeline, last: int = LAST) -> str:
    """The page, one HTML document."""
    found = rows(pipeline, last)
    links = Links.of(pipeline.settings)
    ways = {"Lineage in Dagster": links.lineage(f"{pipeline.name}/trained_model")}
    drawn = [one for extra in drawing_on("experiments") for one in extra.pictures_of(pipeline)]
    return render(pipeline.name, found, _releases(pipeline, found), ways, drawn)


def page_of(settings: Settings, pipeline: str) -> str | None:
    """The page of a pipeline by its name; None where it cannot be made."""
    try:
        return page(open_pipeline(pipeline, settings))
    except MlAssetsError:
        return None


def write_page(pipeline: Pipeline, last: int = LAST) -> Path:
    """Write ``reports/<pipeline>/experiments.html`` and return where it is."""
    html = page(pipeline, last).encode()
    return pipeline.objects.write_bytes(html, "reports", pipeline.name, EXPERIMENTS_PAGE)


def document(pipeline: Pipeline, last: int = LAST) -> dict[str, Any]:
    """The rows as one JSON document, numbers as numbers."""
    found = [row.plain() for row in rows(pipeline, last)]
    return {"schema": SCHEMA, "pipeline": pipeline.name, "runs": found}


def _releases(pipeline: Pipeline, shown: Sequence[Row]) -> tuple[ReleaseStep, ...]:
    """What each release among the rows changed against the one before it, newest first."""
    models = {row.model for row in shown}
    released = moves(read(pipeline.store, pipeline.name), pipeline.spec.release.to)
    steps = [
        (before, after)
        for before, after in pairwise(released)
        if after.model in models and before.model != after.model
    ]
    known = by_model(pipeline, {move.model for step in steps for move in step})
    found: list[ReleaseStep] = []
    for before, after in steps:
        old, new = known.get(before.model), known.get(after.model)
        if old and new:
            changed = differences(candidate(old), candidate(new))
            found.append(ReleaseStep(after.time, before.model, after.model, changed))
    return tuple(reversed(found))


@dataclass(frozen=True)
class Cell:
    """A number of a run as it is shown, and by what its column is sorted; empty: not known."""

    text: str = "–"
    sort: str = ""
    below: str = ""


@dataclass(frozen=True)
class Measure:
    """A column of numbers."""

    name: str
    about: str
    cell: Callable[[Row], Cell]


def render(
    pipeline: str,
    rows: Sequence[Row],
    releases: Sequence[ReleaseStep],
    ways: Mapping[str, str],
    machines: Sequence[Picture] = (),
) -> str:
    """The page.

    Args:
        rows: newest first.
        releases: newest first.
        ways: what a link says -> its address; nothing is loaded from there.
        machines: what machines were used for.
    """
    measures = _measures(rows)
    return pages.page(
        "experiments.html",
        pipeline=pipeline,
        count="the last " * (len(rows) > 1) + counted(len(rows), "run"),
        ways=ways,
        measures=measures,
        told=any(row.words or row.verdict or row.note for row in rows),
        runs=[(row, [one.cell(row) for one in measures]) for row in rows],
        notes=_footnotes(rows),
        machines=machines,
        releases=releases,
    )


def _measures(rows: Sequence[Row]) -> list[Measure]:
    metrics = sorted({name for row in rows for name in row.metrics}, key=order)
    cost = _field("Cost", "Wall time x the price of an hour", "cost", lambda v: f"{v:,.4g}")
    return [
        *(_metric(name) for name in metrics),
        _field("Validation loss", "The lowest while training", "validation_loss", plain_loss),
        _field("Wall time", "Of the training in this run", "seconds", span),
        *([cost] if any(row.cost is not None for row in rows) else []),
        _field("Rows", "To train on", "rows", lambda v: f"{v:,}"),
    ]


def _metric(name: str) -> Measure:
    def cell(row: Row) -> Cell:
        found = row.metrics.get(name)
        if found is None:
            return Cell()
        value, low, high = (
            f"{one:.{digits(name)}f}" for one in (found.value, found.low, found.high)
        )
        return Cell(value, f"{found.value:.12g}", f"{low} to {high}")

    return Measure(title(name), "On the run's own holdout, with its 95% interval", cell)


def _field(name: str, about: str, field: str, write: Callable[[Any], str]) -> Measure:
    def cell(row: Row) -> Cell:
        value = getattr(row, field)
        return Cell() if value is None else Cell(write(value), f"{value:.12g}")

    return Measure(name, about, cell)


def _footnotes(rows: Sequence[Row]) -> list[str]:
    said = [
        "Times and costs count only the training that the run did itself: a run that reuses a "
        "finished session adds no cost. Settings and curves are in MLflow, where you can compare "
        "runs by them."
    ]
    if any(row.cost is None and row.seconds for row in rows):
        said.append(
            "No cost is shown where no price was known when it ran. Set ML_ASSETS_PRICES to what an"
            " hour of a machine costs."
        )
    return said
