"""Finding the runs of a pipeline: those written down, and what the ledger has of older ones."""

from datetime import UTC

from ml_assets.errors import UnknownRun
from ml_assets.records import experiments
from ml_assets.records.changes import Candidate
from ml_assets.records.experiments import Folder, RunStory
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import stages
from ml_assets.records.run_record import RunRecord
from ml_assets.spec.records import EvaluationReport
from ml_assets.store.layout import Address, read_record
from ml_assets.store.pipeline_context import Workplace
from ml_assets.store.snapshots import MAIN, Commit

LAST = 20
"""Runs that are shown unless told otherwise."""
_FIRST = 4
"""Fewest characters that name a run or a model."""


def stories(place: Workplace, last: int = LAST) -> tuple[RunStory, ...]:
    """The last runs of a pipeline, newest first.

    Raises:
        StorageError: a record cannot be read.
    """
    commit = place.store.resolve(MAIN)
    found = experiments.folders(place.store, commit, place.name)[:last]
    return tuple(experiments.read(place.store, commit, folder) for folder in found)


def find(place: Workplace, wanted: str) -> RunStory:
    """A run by the beginning of its id or of its model's digest, by a stage, or ``latest``.

    Of several runs that came to one model it is the newest.

    Raises:
        UnknownRun: there is none, or it could be several.
    """
    commit = place.store.resolve(MAIN)
    folders = experiments.folders(place.store, commit, place.name)
    if wanted == "latest" and folders:
        return experiments.read(place.store, commit, folders[0])
    in_stage = {str(k): v for k, v in stages(read(place.store, place.name)).items()}.get(wanted)
    found: dict[str, Folder] = {}
    for folder in folders:
        model = experiments.model_of(place.store, commit, folder) or ""
        if in_stage is not None and model == in_stage:
            return experiments.read(place.store, commit, folder)
        if len(wanted) >= _FIRST and folder.run.startswith(wanted):
            found[folder.run] = folder
        elif len(wanted) >= _FIRST and model.startswith(wanted):
            found.setdefault(model, folder)
    if len(found) == 1:
        return experiments.read(place.store, commit, next(iter(found.values())))
    digest = in_stage or (wanted if len(wanted) >= _FIRST else None)
    older = _in_the_ledger(place, digest) if digest and not found else None
    if older is not None:
        return older
    known = ", ".join(folder.run[:8] for folder in folders[:5]) or "none"
    what = f"could be {', '.join(f[:12] for f in found)}" if found else "is none"
    raise UnknownRun(
        f"{wanted!r} names a run of {place.name}, a model's digest, a stage or latest; it {what}."
        f" The newest runs are {known}: see ml-assets models experiments {place.name}"
    )


def candidate(story: RunStory) -> Candidate:
    """A run as it is compared: its spec, data and report, as far as it came."""
    spec = story.record.config if story.record else story.begun.config if story.begun else {}
    return Candidate(spec, story.data, story.report)


def by_model(place: Workplace, models: set[str]) -> dict[str, RunStory]:
    """Model -> the newest run that came to it, or what the ledger's commits hold of it."""
    commit = place.store.resolve(MAIN)
    found: dict[str, RunStory] = {}
    for folder in experiments.folders(place.store, commit, place.name):
        model = experiments.model_of(place.store, commit, folder)
        if model in models and model not in found:
            found[model] = experiments.read(place.store, commit, folder)
    for model in models - found.keys():
        story = _in_the_ledger(place, model)
        if story is not None:
            found[model] = story
    return found


def _in_the_ledger(place: Workplace, wanted: str) -> RunStory | None:
    """A model that was decided on before runs were written down, as of that commit."""
    for commit in place.store.log():
        if not commit.metadata.get("model", "").startswith(wanted):
            continue
        story = _story_at(place, commit)
        if story is not None and story.digest and story.digest.startswith(wanted):
            return story
    return None


def _story_at(place: Workplace, commit: Commit) -> RunStory | None:
    """The newest model of a state of the store, with its training set and its report."""
    stages = ("training_set", "trained_model", "evaluation_report")
    data, model, report = (Address(place.name, stage) for stage in stages)
    record = read_record(place.store, commit.id, model)
    judged = read_record(place.store, commit.id, report)
    if record is None or judged is None:
        return None
    found = place.store.read_bytes(commit.id, report.file("report.json"))
    return RunStory(
        folder=Folder(place.name, record.time.astimezone(UTC), record.run),
        begun=None,
        data=read_record(place.store, commit.id, data),
        model=record,
        record=RunRecord.model_validate_json(
            place.store.read_bytes(commit.id, model.file(experiments.RECORD))
        ),
        spent=None,
        report=EvaluationReport.model_validate_json(found),
        failed=None,
    )
