"""The lists of the API: pipelines, experiments, runs and model versions, a page at a time."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ml_assets.errors import MlAssetsError, UnknownRun
from ml_assets.extras.api.shapes import Page
from ml_assets.records import experiments
from ml_assets.records.experiments import RunStory
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import (
    decision_line,
    find_model,
    moves,
    stage_of,
    standing_override,
)
from ml_assets.records.recalls import recalled
from ml_assets.records.tracking.links import Links
from ml_assets.settings import Settings
from ml_assets.spec.load import load_spec, pipeline_folders
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.pipeline_context import Pipeline

T = TypeVar("T")
Document = dict[str, Any]


class NoSuchPage(MlAssetsError):
    """A page begins behind something that is not in the list."""


def page(
    found: Sequence[T], key: Callable[[T], str], after: str | None, limit: int
) -> tuple[list[T], str | None]:
    """The items behind one, and the key of the last where more follow.

    Raises:
        NoSuchPage: none has the key ``after``.
    """
    keys = [key(one) for one in found]
    if after is not None and after not in keys:
        raise NoSuchPage(f"The list has no entry {after!r} to continue from: ask without 'after'.")
    first = keys.index(after) + 1 if after is not None else 0
    items = list(found[first : first + limit])
    return items, key(items[-1]) if first + limit < len(found) else None


def pipelines(settings: Settings, after: str | None, limit: int) -> Page[Document]:
    """The pipelines that the settings name, by name."""
    folders = pipeline_folders(settings)
    names, more = page(sorted(folders), str, after, limit)
    return Page(items=[describe(load_spec(folders[name])) for name in names], next=more)


def describe(spec: PipelineSpec) -> Document:
    """A pipeline as its spec declares it."""
    return {
        "pipeline_id": spec.name,
        "description": spec.description,
        "owner": spec.owner,
        "sources": [*spec.sources],
        "model_type": spec.model.family,
        "releases_to": spec.release.to,
    }


def experiment(pipeline: Pipeline) -> Document:
    """A pipeline's experiment: it has the pipeline's name, here and in MLflow."""
    found = experiments.folders(pipeline.store, pipeline.store.resolve(), pipeline.name)
    return {
        "experiment_id": pipeline.name,
        "pipeline_id": pipeline.name,
        "runs": len(found),
        "last_run": found[0].begun.isoformat() if found else None,
        "url": Links.of(pipeline.settings).experiments(pipeline.name),
    }


def runs(pipeline: Pipeline, after: str | None, limit: int) -> Page[Document]:
    """The runs of a pipeline's model, newest first."""
    commit = pipeline.store.resolve()
    found = experiments.folders(pipeline.store, commit, pipeline.name)
    chosen, more = page(found, lambda folder: folder.run, after, limit)
    stories = (experiments.read(pipeline.store, commit, folder) for folder in chosen)
    return Page(items=[_run(pipeline, story) for story in stories], next=more)


def run(pipeline: Pipeline, run_id: str) -> Document:
    """One run, whole: what it was asked for, made from, measured, and came to.

    Raises:
        UnknownRun: nothing was written down about it.
    """
    folder = experiments.folder_of(pipeline.store, pipeline.name, run_id)
    if folder is None:
        raise UnknownRun(f"{pipeline.name} has no run {run_id[:80]!r}.")
    story = experiments.read(pipeline.store, pipeline.store.resolve(), folder)
    begun, record, report = story.begun, story.record, story.report
    return {
        **_run(pipeline, story),
        "config": begun.config if begun else None,
        "params": record.config if record else None,
        "inputs": [one.model_dump(mode="json") for one in story.data.inputs] if story.data else [],
        "training": story.spent.model_dump(mode="json") if story.spent else None,
        "intervals": {name: value.model_dump(mode="json") for name, value in report.metrics.items()}
        if report
        else {},
        "notes": [note.model_dump(mode="json") for note in story.notes],
        "code_version": story.model.code_version if story.model else None,
    }


def model_versions(pipeline: Pipeline, after: str | None, limit: int) -> Page[Document]:
    """The models that the ledger knows, the last to come first."""
    entries = read(pipeline.store, pipeline.name)
    known = list(dict.fromkeys(entry.model for entry in entries))[::-1]
    chosen, more = page(known, str, after, limit)
    return Page(items=[_version(pipeline, entries, model) for model in chosen], next=more)


def model_version(pipeline: Pipeline, version: str) -> Document:
    """One model of the ledger, by its digest or six characters of its beginning.

    Raises:
        UnknownModel: there is none, or several.
    """
    entries = read(pipeline.store, pipeline.name)
    model = find_model(entries, version)
    decided = decision_line(entries, model)
    gates = decided.decision.gates if decided and decided.decision else ()
    return {
        **_version(pipeline, entries, model),
        "gates": [gate.model_dump(mode="json") for gate in gates],
        "moves": [
            entry.model_dump(mode="json") for entry in moves(entries) if entry.model == model
        ],
    }


def _run(pipeline: Pipeline, story: RunStory) -> Document:
    words = story.begun.words.said() if story.begun else {}
    failed = story.failed
    return {
        "experiment_id": pipeline.name,
        "run_id": story.folder.run,
        "began": story.folder.begun.isoformat(),
        "status": _status(story),
        "failed": failed.model_dump(mode="json") if failed else None,
        "trigger": story.begun.trigger if story.begun else None,
        **{name: words.get(name) for name in ("experiment", "hypothesis", "goal")},
        "model_version": story.digest,
        "metrics": {name: one.value for name, one in story.report.metrics.items()}
        if story.report
        else {},
        "url": Links.of(pipeline.settings).run(story.folder.run),
    }


def _status(story: RunStory) -> str:
    if story.failed:
        return "failed"
    return "evaluated" if story.report else "trained" if story.model else "begun"


def _version(pipeline: Pipeline, entries: Sequence[LedgerEntry], model: str) -> Document:
    decided = decision_line(entries, model)
    decision = decided.decision if decided else None
    word = standing_override(entries, model)
    bad = recalled(pipeline.store, pipeline.store.resolve(), pipeline.name, model)
    first = next(entry for entry in entries if entry.model == model)
    return {
        "name": pipeline.name,
        "version": model,
        "stage": stage_of(entries, model),
        "registered": first.time.isoformat(),
        "passed": decision.passed if decision else None,
        "reason": decision.reason if decision else "The gates have not decided on it.",
        "ledger_line": decided.seq if decided else None,
        "override": {"author": word.author, "reason": word.reason} if word else None,
        "recall": bad.id if bad else None,
        "made_elsewhere": first.registered.model_dump() if first.registered else None,
    }
