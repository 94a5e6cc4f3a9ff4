"""The last runs of a pipeline side by side, from their records and the ledger."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ml_assets.errors import MlAssetsError
from ml_assets.evaluation.changes import differences
from ml_assets.operations.run_stories import LAST, by_model, candidate, stories
from ml_assets.operations.workplace import Workplace, open_pipeline
from ml_assets.pictures.experiments import render
from ml_assets.pictures.run_rows import Outcome, ReleaseStep, Row
from ml_assets.registry.experiments import RunStory
from ml_assets.registry.ledger import read
from ml_assets.registry.links import EXPERIMENTS_PAGE, Links, report_name
from ml_assets.registry.stages import stages
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
    return render(place.name, found, _releases(place, found), ways)


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
    page = place.objects.path("reports", place.name, report_name(digest)) if digest else None
    verdict = next((n.verdict for n in reversed(story.notes) if n.verdict), None)
    return Row(
        run=story.folder.run,
        time=story.folder.begun,
        model=digest,
        report=report_name(digest) if digest and page and page.is_file() else None,
        outcome=_outcome(story, entries),
        stage=_stage(digest, entries),
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
    failed, digest = story.failed, story.digest
    made = {"training_set": story.data, "trained_model": story.model}
    decision = _decision(story, entries)
    if failed is not None and not made.get(failed.stage) and failed.stage != "released_model":
        return Outcome("bad", f"failed at {failed.stage}", failed.reason)
    if decision is not None:
        gates = [gate for gate in decision.gates if not gate.passed]
        why = "; ".join(f"{gate.name}: {gate.reason}" for gate in gates) or decision.reason
        if decision.passed:
            return Outcome("good", "passed", why)
        return Outcome("bad", f"refused by {', '.join(g.name for g in gates) or 'the gates'}", why)
    if failed is not None:
        return Outcome("bad", f"failed at {failed.stage}", failed.reason)
    if digest is None:
        return Outcome("wait", "no end told", "It is running, or its process was killed.")
    return Outcome("wait", "not judged", "No decision on this model is in the ledger.")


def _decision(story: RunStory, entries: Sequence[LedgerEntry]) -> Decision | None:
    """The one that the run made, or that stood when it came to the same once more."""
    made = [e.decision for e in entries if e.decision and e.model == story.digest]
    own = [decision for decision in made if decision.run == story.folder.run]
    stood = [decision for decision in made if decision.time <= story.folder.begun]
    return next(iter([*reversed(own), *reversed(stood), *made]), None)


def _stage(digest: str | None, entries: Sequence[LedgerEntry]) -> str | None:
    """Where the run's model is; of one that was released and is not any more: ``replaced``."""
    if digest is None:
        return None
    now = [str(stage) for stage, model in stages(entries).items() if model == digest]
    was = any(entry.kind == "stage" and entry.model == digest for entry in entries)
    return ", ".join(now) or ("replaced" if was else None)


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
    moves = [entry for entry in read(place.store, place.name) if entry.kind == "stage"]
    steps = [
        (before, after)
        for before, after in pairwise(moves)
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
