"""Finds the runs of a pipeline: the last ones, one by its name, those that came to a model."""

from ml_assets.errors import UnknownRun
from ml_assets.records import run_folders
from ml_assets.records.changes import Candidate
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import stages
from ml_assets.records.run_folders import RunFolder, RunStory
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import MAIN

LAST = 20
"""Runs that are shown unless told otherwise."""
_FIRST = 4
"""Fewest characters that name a run or a model."""


def stories(pipeline: Pipeline, last: int = LAST) -> tuple[RunStory, ...]:
    """The last runs of a pipeline, newest first.

    Raises:
        StorageError: a record cannot be read.
    """
    commit = pipeline.store.resolve(MAIN)
    found = run_folders.folders(pipeline.store, commit, pipeline.name)[:last]
    return tuple(run_folders.read(pipeline.store, commit, folder) for folder in found)


def find(pipeline: Pipeline, wanted: str) -> RunStory:
    """A run by the beginning of its id or of its model's digest, by a stage, or ``latest``.

    Of several runs that came to one model it is the newest.

    Raises:
        UnknownRun: there is none, or it could be several.
    """
    commit = pipeline.store.resolve(MAIN)
    folders = run_folders.folders(pipeline.store, commit, pipeline.name)
    if wanted == "latest" and folders:
        return run_folders.read(pipeline.store, commit, folders[0])
    in_stage = {str(k): v for k, v in stages(read(pipeline.store, pipeline.name)).items()}.get(
        wanted
    )
    found: dict[str, RunFolder] = {}
    for folder in folders:
        model = run_folders.model_of(pipeline.store, commit, folder) or ""
        if in_stage is not None and model == in_stage:
            return run_folders.read(pipeline.store, commit, folder)
        if len(wanted) >= _FIRST and folder.run.startswith(wanted):
            found[folder.run] = folder
        elif len(wanted) >= _FIRST and model.startswith(wanted):
            found.setdefault(model, folder)
    if len(found) == 1:
        return run_folders.read(pipeline.store, commit, next(iter(found.values())))
    known = ", ".join(folder.run[:8] for folder in folders[:5]) or "none"
    what = f"could be {', '.join(f[:12] for f in found)}" if found else "is none"
    raise UnknownRun(
        f"{wanted!r} names a run of {pipeline.name}, a model's digest, a stage or latest; it"
        f" {what}. The newest runs are {known}: see ml-assets models experiments {pipeline.name}"
    )


def candidate(story: RunStory) -> Candidate:
    """A run as it is compared: its spec, data and report, as far as it came."""
    spec = story.record.config if story.record else story.begun.config if story.begun else {}
    return Candidate(spec, story.data, story.report)


def by_model(pipeline: Pipeline, models: set[str]) -> dict[str, RunStory]:
    """Model -> the newest run that came to it."""
    commit = pipeline.store.resolve(MAIN)
    found: dict[str, RunStory] = {}
    for folder in run_folders.folders(pipeline.store, commit, pipeline.name):
        model = run_folders.model_of(pipeline.store, commit, folder)
        if model in models and model not in found:
            found[model] = run_folders.read(pipeline.store, commit, folder)
    return found
