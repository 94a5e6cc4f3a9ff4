"""What MLflow could not take while it was away: noted in the state folder until it has it.

A note names the session; its curves are read again from the session's own events, so a note is
small, and delivering it twice adds nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError

from ml_assets.launch.events import session_events
from ml_assets.records.tracking.mlflow import Logged, Tracking, Unavailable
from ml_assets.spec.base import Frozen
from ml_assets.spec.canonical import canonical_json
from ml_assets.spec.training_story import TrainingStory
from ml_assets.store.objects import write_whole


class Debt(Frozen):
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
    """What became of the notes."""

    sessions: tuple[str, ...]
    left: int
    reason: str
    """Why some are left; empty where none is."""


@dataclass(frozen=True)
class Debts:
    """The notes of one state folder.

    Args:
        home: the state folder.
        sessions: the folder that holds the sessions.
    """

    home: Path
    sessions: Path

    def note(self, debt: Debt) -> None:
        """Write a note, in place of one about the same session."""
        self._folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._file(debt.session), canonical_json(debt))

    def owe(self, debt: Debt) -> Debt:
        """Note what MLflow is to be told, beside what it lacks of the session already."""
        known = next((one for one in self.all() if one.session == debt.session), None)
        if known is not None:
            more = {
                "tags": {**known.tags, **debt.tags},
                "params": {**known.params, **debt.params},
                "numbers": {**known.numbers, **debt.numbers},
                "record": debt.record or known.record,
            }
            debt = debt.model_copy(update=more)
        self.note(debt)
        return debt

    def forget(self, session: str) -> None:
        self._file(session).unlink(missing_ok=True)

    def all(self) -> list[Debt]:
        """Notes that can be read; another one is of another version, and left alone."""
        found: list[Debt] = []
        for file in sorted(self._folder.glob("*.json")):
            try:
                found.append(Debt.model_validate_json(file.read_bytes()))
            except (OSError, ValidationError):
                continue
        return found

    def deliver(self, tracking: Tracking) -> Delivered:
        """Tell MLflow what it lacks; the first call that it does not take ends the attempt."""
        debts, done = self.all(), list[str]()
        for debt in debts:
            folder = self.sessions / debt.session
            if not folder.is_dir():  # collected: nothing is left to tell
                self.forget(debt.session)
                continue
            story = TrainingStory()
            for event in session_events(folder):
                story.take(event)
            said = tell_whole(tracking, debt, story)
            if isinstance(said, Unavailable):
                return Delivered(tuple(done), len(debts) - len(done), said.reason)
            self.forget(debt.session)
            done.append(debt.session)
        return Delivered(tuple(done), 0, "")

    @property
    def _folder(self) -> Path:
        return self.home / "owed_to_mlflow"

    def _file(self, session: str) -> Path:
        return self._folder / f"{session}.json"


def tell_whole(tracking: Tracking, debt: Debt, story: TrainingStory) -> str | Unavailable:
    """Make the MLflow run of a session whole; what it has already is not told twice.

    Returns:
        The run's id.
    """
    run = tracking.open_run(debt.pipeline, debt.session, debt.tags, debt.params)
    if isinstance(run, Unavailable):
        return run
    for said in _calls(tracking, run, debt, story):
        if isinstance(said, Unavailable):
            return said
    return run


def _calls(
    tracking: Tracking, run: str, debt: Debt, story: TrainingStory
) -> Iterator[Logged | Unavailable]:
    """One call after the other, each when it is asked for."""
    yield tracking.log_metrics(run, story.metrics, story.times, now=True)
    if debt.numbers:
        steps = {int(step): values for step, values in debt.numbers.items()}
        yield tracking.log_metrics(run, steps, now=True)
    yield tracking.set_tags(run, debt.tags)
    if debt.record is not None:
        yield tracking.log_text(run, debt.record, "run.json")
    trace = Path(story.trace.uri).resolve() if story.trace is not None else None
    if trace is not None and trace.is_file() and debt.session in trace.parent.parts:
        yield tracking.log_artifact(run, trace)  # an event may name any file: only its session's
    yield tracking.close(run, debt.status)


def sentences(delivered: Delivered) -> Sequence[str]:
    """What a person is told of a delivery; nothing where nothing was owed."""
    lines = [f"MLflow was told what it lacked of {session}" for session in delivered.sessions]
    if delivered.left:
        lines.append(f"MLflow still lacks {delivered.left} sessions: {delivered.reason}")
    return lines
