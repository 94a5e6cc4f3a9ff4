"""The last runs of a pipeline side by side, from their records and the ledger."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ml_assets.errors import MlAssetsError
from ml_assets.extras.cost.months import pictures_of
from ml_assets.records.changes import differences
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import moves
from ml_assets.records.run_lines import rows
from ml_assets.records.run_stories import LAST, by_model, candidate
from ml_assets.records.tracking.links import EXPERIMENTS_PAGE, Links
from ml_assets.reports.experiments import render
from ml_assets.reports.run_rows import ReleaseStep, Row
from ml_assets.settings import read_prices
from ml_assets.store.pipeline_context import Workplace, open_pipeline

SCHEMA = 1


def page(place: Workplace, last: int = LAST) -> str:
    """The page, one HTML document."""
    found = rows(place, last)
    links = Links.of()
    ways = {"Lineage in Dagster": links.asset(f"{place.name}/trained_model")}
    machines = pictures_of(place, read_prices())
    return render(place.name, found, _releases(place, found), ways, machines)


def page_of(pipeline: str) -> str | None:
    """The page of a pipeline by its name; None where it cannot be made."""
    try:
        return page(open_pipeline(pipeline))
    except MlAssetsError:
        return None


def write_page(place: Workplace, last: int = LAST) -> Path:
    """Write ``reports/<pipeline>/experiments.html`` and return where it is."""
    html = page(place, last).encode()
    return place.objects.write_bytes(html, "reports", place.name, EXPERIMENTS_PAGE)


def document(place: Workplace, last: int = LAST) -> dict[str, Any]:
    """The rows as one JSON document, numbers as numbers."""
    found = [row.plain() for row in rows(place, last)]
    return {"schema": SCHEMA, "pipeline": place.name, "runs": found}


def _releases(place: Workplace, shown: Sequence[Row]) -> tuple[ReleaseStep, ...]:
    """What each release among the rows changed against the one before it, newest first."""
    models = {row.model for row in shown}
    released = moves(read(place.store, place.name), place.spec.release.to)
    steps = [
        (before, after)
        for before, after in pairwise(released)
        if after.model in models and before.model != after.model
    ]
    known = by_model(place, {move.model for step in steps for move in step})
    found: list[ReleaseStep] = []
    for before, after in steps:
        old, new = known.get(before.model), known.get(after.model)
        if old and new:
            changed = differences(candidate(old), candidate(new))
            found.append(ReleaseStep(after.time, before.model, after.model, changed))
    return tuple(reversed(found))
