"""The last runs of a pipeline side by side, from their records and the ledger."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ml_assets.errors import MlAssetsError
from ml_assets.evaluation.changes import differences
from ml_assets.operations.cost.months import pictures_of
from ml_assets.operations.run_stories import LAST, by_model, candidate, stories
from ml_assets.operations.workplace import Workplace, open_pipeline
from ml_assets.pictures.experiments import render
from ml_assets.pictures.run_rows import Outcome, ReleaseStep, Row
from ml_assets.registry.ledger.chain import read
from ml_assets.registry.ledger.stages import moves, override_line, stage_of
from ml_assets.registry.records.experiments import RunStory
from ml_assets.registry.tracking.links import EXPERIMENTS_PAGE, Links, report_name
from ml_assets.settings import read_prices
from ml_assets.spec.records import Decision, LedgerEntry

SCHEMA = 1


def rows(place: Workplace, last: int = LAST) -> tuple[Row, ...]:
    """The same as lines of the page."""
    entries = read(place.store, place.name)
    return tuple(_row(place, story, entries) for story in stories(place, last))


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


def _row(place: Workplace, story: RunStory, entries: Sequence[LedgerEntry]) -> Row:
    begun, spent, digest = story.begun, story.spent, story.digest
    note = story.notes[-1] if story.notes else None
    config = candidate(story).spec
    training, model = config.get("training", {}), config.get("model", {})
    trees = model.get("family") == "lightgbm"
    data, told = story.data, story.data.attributes if story.data else {}
    page = digest and place.objects.exists("reports", place.name, report_name(digest))
    verdict = next((n.verdict for n in reversed(story.notes) if n.verdict), None)
    return Row(
        run=story.folder.run,
        time=story.folder.begun,
        model=digest,
        report=report_name(digest) if digest and page else None,
        outcome=_outcome(story, entries),
        stage=stage_of(entries, digest) if digest else None,
        words=begun.words.said() if begun else {},
        verdict=verdict,
        note=note.note if note else None,
        author=note.author if note else None,
        metrics=story.report.metrics if story.report else {},
        train_loss=spent.train_loss if spent else None,
        validation_loss=spent.validation_loss if spent else None,
        learning_rate=(model if trees else training).get("learning_rate"),
        epochs=spent.epochs if spent else None,
        epochs_asked=None if trees else training.get("epochs"),
        batch=None if trees else training.get("batch_size"),
        seconds=spent.seconds if spent else None,
        cpu_seconds=_cpu_seconds(story),
        gpu_seconds=spent.seconds * spent.gpus if spent else None,
        cost=_cost(story),
        rows=told.get("rows", {}).get("train"),
        as_of=told.get("as_of"),
        data=data.data_version if data else None,
    )


def _outcome(story: RunStory, entries: Sequence[LedgerEntry]) -> Outcome:
    """What the run came to; a failure counts unless the step ended well after all."""
    failed, line = story.failed, _decision(story, entries)
    made = {"training_set": story.data, "trained_model": story.model}
    refused = line is not None and line.decision is not None and not line.decision.passed
    ended = failed is not None and not made.get(failed.stage)
    if failed and ended and not (failed.stage == "released_model" and refused):
        return Outcome("bad", f"failed at {failed.stage}", failed.reason)
    if line is not None and line.decision is not None:
        return _judged(line, line.decision, entries)
    if story.digest is None:
        return Outcome("wait", "no end told", "It is running, or its process was killed.")
    return Outcome("wait", "not judged", "No decision on this model is in the ledger.")


def _judged(line: LedgerEntry, decision: Decision, entries: Sequence[LedgerEntry]) -> Outcome:
    gates = [gate for gate in decision.gates if not gate.passed]
    why = "; ".join(f"{gate.name}: {gate.reason}" for gate in gates) or decision.reason
    if decision.passed:
        return Outcome("good", "passed", why)
    said = f"refused by {', '.join(gate.name for gate in gates) or 'the gates'}"
    override = override_line(entries, line)
    if override is not None:
        said = f"{said}; OVERRIDDEN by {override.author}"
        why = f"{why}. Overridden: {override.reason}"
    return Outcome("bad", said, why)


def _decision(story: RunStory, entries: Sequence[LedgerEntry]) -> LedgerEntry | None:
    """The decision of the run, or the one that stood when it came to the same once more."""
    lines = [e for e in entries if e.decision and e.model == story.digest]
    own = [line for line in lines if line.run == story.folder.run]
    stood = [line for line in lines if line.time <= story.folder.begun]
    return next(iter([*reversed(own), *reversed(stood), *lines]), None)


def _cpu_seconds(story: RunStory) -> float | None:
    if story.spent is None:
        return None
    world = story.spent.world
    return story.spent.seconds * world.nodes * world.procs * world.threads


def _cost(story: RunStory) -> float | None:
    spent = story.spent
    if spent is None or spent.price_per_hour is None:
        return None
    return spent.seconds / 3600 * spent.world.nodes * spent.price_per_hour


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
