"""The runs of a pipeline for people to compare: what was tried, why, and with which result.

Each run has a folder of records in the snapshot store, ``experiments/<pipeline>/<begun>-<run>/``.
Files are only ever added to it. No name of a session, a model or a unit of work depends on them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field

from ml_assets.errors import StorageError
from ml_assets.records.run_record import RunRecord
from ml_assets.spec.base import Digest, Frozen, canonical_json, digest_of, unset
from ml_assets.spec.records import EvaluationReport, StageRecord, Time
from ml_assets.spec.training_program import World
from ml_assets.store.layout import read_as
from ml_assets.store.snapshots import MAIN, CommitId, Conflict, PublishResult, SnapshotStore

HypothesisVerdict = Literal["confirmed", "rejected", "open"]
Model = TypeVar("Model", bound=BaseModel)

BEGUN, DATA, MODEL, RECORD = "begun.json", "data.json", "model.json", "run.json"
SPENT, REPORT, FAILED, NOTES = "spent.json", "report.json", "failed.json", "notes/"
STUDY = "study.json"
_ATTEMPTS = 100
_TIME = "%Y%m%dT%H%M%S%f"
_FOLDER = re.compile(r"(\d{8}T\d{12})-([0-9A-Za-z-]{1,64})")
_LENGTHS = {"experiment": 100, "hypothesis": 1000, "goal": 1000, "note": 4000, "author": 100}
"""Most characters of each; what is longer is cut, for words must not stop a training."""


def plain_words(name: str, text: object) -> str | None:
    """Return what somebody said, on one line, as long as it may be; None where nothing was said."""
    if not isinstance(text, str):
        return None
    shown = "".join(c if c.isprintable() else " " for c in text)
    words = " ".join(shown.split())
    most = _LENGTHS[name]
    return (words if len(words) <= most else f"{words[: most - 1]}…") or None


class Words(Frozen):
    """Says why a run was made, in its author's words."""

    experiment: str | None = Field(default=None, exclude_if=unset)
    """Names what runs together try to find out."""
    hypothesis: str | None = Field(default=None, exclude_if=unset)
    goal: str | None = Field(default=None, exclude_if=unset)

    @classmethod
    def of(cls, said: Mapping[str, object]) -> "Words":
        """The words among other things that were said, cleaned; from wherever they came."""
        found = {name: plain_words(name, said.get(name)) for name in cls.model_fields}
        return cls.model_validate(found)

    def said(self) -> dict[str, str]:
        """The words that were said, by their names."""
        return self.model_dump(mode="json")


def tracking_tags(words: Words, note: "Note | None" = None) -> dict[str, str]:
    """A run's words and its newest note as tags in MLflow."""
    said = words.said()
    if note is not None:
        said |= {"verdict": note.verdict or "", "note": note.note or ""}
    return {f"ml_assets.{name}": text for name, text in said.items() if text}


class Begun(Frozen):
    """A run of the model's stages, as it began."""

    schema_version: Literal[1] = 1
    pipeline: str
    run: str
    """Dagster run id."""
    trigger: str
    words: Words
    config: dict[str, Any]
    """The resolved spec."""
    time: Time


class TrainingUse(Frozen):
    """Holds what the training of one run took, and how far it came: from its own events."""

    schema_version: Literal[1] = 1
    session: str
    attempts: int
    """That this run began; none: the session had ended before."""
    seconds: float
    """Wall time of those attempts."""
    world: World
    gpus: int
    """On which the network lay."""
    price_per_hour: float | None
    """The price of a machine, as the settings said then."""
    step: int
    epochs: float | None
    train_loss: float | None
    validation_loss: float | None
    """The lowest."""


STOPPED = "It was stopped."
"""The reason of a step that did not fail: a person interrupted its run."""


class FailedStep(Frozen):
    """A step that ended with an error."""

    schema_version: Literal[1] = 1
    stage: str
    reason: str
    time: Time


class Note(Frozen):
    """A note or verdict on a run, added afterwards."""

    schema_version: Literal[1] = 1
    run: str
    model: Digest | None
    verdict: HypothesisVerdict | None
    note: str | None
    author: str
    time: Time


@dataclass(frozen=True)
class RunFolder:
    """Says where a run's records lie."""

    pipeline: str
    begun: datetime
    run: str
    files: frozenset[str] = frozenset()
    """Those that there are."""

    @property
    def path(self) -> str:
        return f"{_home(self.pipeline)}{self.begun.strftime(_TIME)}-{self.run}/"


@dataclass(frozen=True)
class RunStory:
    """All that was written down about one run; what it did not come to is None."""

    folder: RunFolder
    begun: Begun | None
    data: StageRecord | None
    """The record of the training set."""
    model: StageRecord | None
    record: RunRecord | None
    spent: TrainingUse | None
    report: EvaluationReport | None
    failed: FailedStep | None
    notes: tuple[Note, ...] = field(default=())
    """Oldest first."""
    study: StageRecord | None = None
    """The record of the search that the run made."""

    @property
    def digest(self) -> str | None:
        """The model that the run made or judged."""
        return self.model.data_version if self.model else None


def begin(store: SnapshotStore, begun: Begun) -> None:
    """Open a run's folder; one that is open stays as it is."""
    if folder_of(store, begun.pipeline, begun.run) is None:
        folder = RunFolder(begun.pipeline, begun.time.astimezone(UTC), begun.run)
        _publish(store, folder, {BEGUN: canonical_json(begun)})


def add(store: SnapshotStore, pipeline: str, run: str, files: Mapping[str, bytes]) -> None:
    """Add files to a run's folder; one that is there stays as it is.

    Raises:
        StorageError: the run has no folder.
    """
    folder = folder_of(store, pipeline, run)
    if folder is None:
        raise StorageError(f"Run {run} of {pipeline} has no folder to write {sorted(files)} to.")
    new = {name: data for name, data in files.items() if name not in folder.files}
    if new:
        _publish(store, folder, new)


def add_note(store: SnapshotStore, folder: RunFolder, note: Note) -> None:
    """Add a note to a run, behind those that there are.

    Raises:
        StorageError: others were always first.
    """
    for _ in range(_ATTEMPTS):
        now = folder_of(store, folder.pipeline, folder.run) or folder
        number = sum(name.startswith(NOTES) for name in now.files) + 1
        data = {f"{NOTES}{number:06d}.json": canonical_json(note)}
        if not isinstance(_publish(store, now, data), Conflict):
            return
    raise StorageError(
        f"The note could not be added to {folder.path} in {_ATTEMPTS} attempts: other writers were"
        " always first. Run again when fewer runs are active."
    )


def folder_of(store: SnapshotStore, pipeline: str, run: str) -> RunFolder | None:
    """The folder of a run; None where nothing was written down about it."""
    return next((f for f in folders(store, store.resolve(MAIN), pipeline) if f.run == run), None)


def folders(store: SnapshotStore, commit: CommitId, pipeline: str) -> tuple[RunFolder, ...]:
    """The folders of all runs of a pipeline, newest first."""
    home = _home(pipeline)
    files: dict[str, set[str]] = {}
    for entry in store.list(commit, home):
        name, _, rest = entry.path.removeprefix(home).partition("/")
        files.setdefault(name, set()).add(rest)
    found: list[RunFolder] = []
    for name in sorted(files, reverse=True):
        parts = _FOLDER.fullmatch(name)
        if parts is None:
            raise StorageError(
                f"{home}{name} is not the folder of a run; revert the commit that added it."
            )
        begun = datetime.strptime(parts[1], _TIME).replace(tzinfo=UTC)
        found.append(RunFolder(pipeline, begun, parts[2], frozenset(files[name])))
    return tuple(found)


def model_of(store: SnapshotStore, commit: CommitId, folder: RunFolder) -> str | None:
    """The digest of the model that a run made or judged; None where it came to none."""
    if MODEL not in folder.files:
        return None
    return json.loads(store.read_bytes(commit, f"{folder.path}{MODEL}"))["data_version"]


def read(store: SnapshotStore, commit: CommitId, folder: RunFolder) -> RunStory:
    """Everything in a run's folder.

    Raises:
        StorageError: a record cannot be read.
    """

    def one(name: str, kind: type[Model]) -> Model | None:
        if name not in folder.files:
            return None
        return read_as(store, commit, f"{folder.path}{name}", kind)

    notes = sorted(name for name in folder.files if name.startswith(NOTES))
    return RunStory(
        folder=folder,
        begun=one(BEGUN, Begun),
        data=one(DATA, StageRecord),
        model=one(MODEL, StageRecord),
        record=one(RECORD, RunRecord),
        spent=one(SPENT, TrainingUse),
        report=one(REPORT, EvaluationReport),
        failed=one(FAILED, FailedStep),
        notes=tuple(note for name in notes if (note := one(name, Note))),
        study=one(STUDY, StageRecord),
    )


def _publish(store: SnapshotStore, folder: RunFolder, files: Mapping[str, bytes]) -> PublishResult:
    key = digest_of([folder.path, sorted((name, data.decode()) for name, data in files.items())])
    with store.open(store.resolve(MAIN), f"experiment-{key}") as workspace:
        for name, data in files.items():
            workspace.put_bytes(f"{folder.path}{name}", data, if_absent=True)
        workspace.commit(f"experiment {folder.pipeline} {folder.run[:8]}", {"run": folder.run})
        return workspace.publish()


def _home(pipeline: str) -> str:
    return f"experiments/{pipeline}/"
