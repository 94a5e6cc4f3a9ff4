"""The outbox for MLflow: what it did not accept while it was down, kept in the state folder.

A note names the session; its curves are read again from the session's own events, so a note is
small, and delivering it twice adds nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError

from ml_assets.errors import StoreAway, counted, one_line
from ml_assets.launch.events import attempt_numbers, session_events
from ml_assets.launch.staging.mirror import session_here
from ml_assets.records.tracking.mlflow import Logged, Tracking, Unavailable
from ml_assets.spec.base import Frozen, canonical_json
from ml_assets.spec.training_progress import TrainingStory
from ml_assets.store.objects import LocalObjects, write_whole


class OutboxEntry(Frozen):
    """A session whose MLflow run is not whole."""

    schema_version: Literal[1] = 1
    pipeline: str
    session: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    """It becomes a file's name."""
    status: Literal["FINISHED", "FAILED"]
    tags: dict[str, str]
    params: dict[str, str]
    numbers: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Step -> what was measured of the model since."""
    record: str | None = None
    """The run's record, as JSON: it becomes the artifact run.json."""


@dataclass(frozen=True)
class Delivered:
    """Holds what became of the notes."""

    sessions: tuple[str, ...]
    left: int
    reason: str
    """Why some are left; empty where none is."""


@dataclass(frozen=True)
class Outbox:
    """The notes of one state folder.

    Args:
        home: the state folder.
        objects: the store that holds the sessions.
    """

    home: Path
    objects: LocalObjects

    def note(self, entry: OutboxEntry) -> None:
        """Write a note, in place of one about the same session."""
        self._folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._file(entry.session), canonical_json(entry))

    def add(self, entry: OutboxEntry) -> OutboxEntry:
        """Note what MLflow is to be told, beside what it lacks of the session already."""
        known = next((one for one in self.all() if one.session == entry.session), None)
        if known is not None:
            more = {
                "tags": {**known.tags, **entry.tags},
                "params": {**known.params, **entry.params},
                "numbers": {**known.numbers, **entry.numbers},
                "record": entry.record or known.record,
            }
            entry = entry.model_copy(update=more)
        self.note(entry)
        return entry

    def forget(self, session: str) -> None:
        self._file(session).unlink(missing_ok=True)
        for draft in self._folder.glob(f".{session}.json.*"):  # of a process that was killed
            draft.unlink(missing_ok=True)

    def all(self) -> list[OutboxEntry]:
        """Notes that can be read; another one is of another version, and left alone."""
        found: list[OutboxEntry] = []
        for file in sorted(self._folder.glob("*.json")):
            try:
                found.append(OutboxEntry.model_validate_json(file.read_bytes()))
            except (OSError, ValidationError):
                continue
        return found

    def deliver(self, tracking: Tracking) -> Delivered:
        """Tell MLflow what it lacks; the first call that it does not take ends the attempt."""
        outbox, done = self.all(), list[str]()
        for entry in outbox:
            try:
                folder = self._session(entry.session)
            except StoreAway as away:
                return Delivered(tuple(done), len(outbox) - len(done), one_line(str(away)))
            if folder is None:
                self.forget(entry.session)
                continue
            story = TrainingStory()
            for event in session_events(folder):
                story.take(event)
            said = tell_whole(tracking, entry, story)
            if isinstance(said, Unavailable):
                return Delivered(tuple(done), len(outbox) - len(done), said.reason)
            self.forget(entry.session)
            done.append(entry.session)
        return Delivered(tuple(done), 0, "")

    def _session(self, session: str) -> Path | None:
        """The folder of a session, brought here where it lies on S3 alone; None: it was collected.

        Raises:
            StoreAway: nobody can tell.
        """
        here = self.objects.path("sessions", session)
        if here.is_dir():
            return here
        return here if attempt_numbers(session_here(self.objects, session)) else None

    @property
    def _folder(self) -> Path:
        return self.home / "mlflow_outbox"

    def _file(self, session: str) -> Path:
        return self._folder / f"{session}.json"


def tell_whole(tracking: Tracking, entry: OutboxEntry, story: TrainingStory) -> str | Unavailable:
    """Make the MLflow run of a session whole; what it has already is not told twice.

    Returns:
        The run's id.
    """
    run = tracking.open_run(entry.pipeline, entry.session, entry.tags, entry.params)
    if isinstance(run, Unavailable):
        return run
    for said in _calls(tracking, run, entry, story):
        if isinstance(said, Unavailable):
            return said
    return run


def _calls(
    tracking: Tracking, run: str, entry: OutboxEntry, story: TrainingStory
) -> Iterator[Logged | Unavailable]:
    """One call after the other, each when it is asked for."""
    yield tracking.log_metrics(run, story.metrics, story.times, now=True)
    if entry.numbers:
        steps = {int(step): values for step, values in entry.numbers.items()}
        yield tracking.log_metrics(run, steps, now=True)
    yield tracking.set_tags(run, entry.tags)
    if entry.record is not None:
        yield tracking.log_text(run, entry.record, "run.json")
    trace = Path(story.trace.uri).resolve() if story.trace is not None else None
    if trace is not None and trace.is_file() and entry.session in trace.parent.parts:
        yield tracking.log_artifact(run, trace)  # an event may name any file: only its session's
    yield tracking.close(run, entry.status)


def sentences(delivered: Delivered) -> Sequence[str]:
    """Return what a person is told of a delivery; nothing where the outbox was empty."""
    lines = [f"MLflow received what it lacked of {session}" for session in delivered.sessions]
    if delivered.left:
        lines.append(f"MLflow still lacks {counted(delivered.left, 'session')}: {delivered.reason}")
    return lines
