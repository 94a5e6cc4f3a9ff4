"""The last runs of a pipeline side by side, from their records and the ledger."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ml_assets.doors import drawing_on
from ml_assets.errors import MlAssetsError
from ml_assets.records.changes import differences
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import moves
from ml_assets.records.run_lines import rows
from ml_assets.records.run_stories import LAST, by_model, candidate
from ml_assets.records.tracking.links import EXPERIMENTS_PAGE, Links
from ml_assets.reports.experiments import render
from ml_assets.reports.run_rows import ReleaseStep, Row
from ml_assets.settings import Settings
from ml_assets.store.pipeline_context import Pipeline, open_pipeline

SCHEMA = 1


def page(pipeline: Pipeline, last: int = LAST) -> str:
    """The page, one HTML document."""
    found = rows(pipeline, last)
    links = Links.of(pipeline.settings)
    ways = {"Lineage in Dagster": links.asset(f"{pipeline.name}/trained_model")}
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
