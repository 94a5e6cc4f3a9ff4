"""The event stream's reader: typed, in order, each event once, whatever was read before."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ml_assets.spec.program import Event

EVENTS_FILE = "events.jsonl"
_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


@dataclass
class EventReader:
    """Reads an attempt's files as they grow; a line that is still being written waits."""

    folder: Path
    _offsets: dict[Path, int] = field(default_factory=dict)
    _seen: set[tuple[int, int]] = field(default_factory=set)

    def new(self) -> Iterator[Event]:
        """Whole events that were not given before: rank 0's, then those of ranks that failed."""
        for file in sorted(self.folder.glob("events*.jsonl")):
            yield from self._new_of(file)

    def _new_of(self, file: Path) -> Iterator[Event]:
        with file.open("rb") as handle:
            handle.seek(self._offsets.get(file, 0))
            for line in handle:
                if not line.endswith(b"\n"):
                    return
                self._offsets[file] = self._offsets.get(file, 0) + len(line)
                event = parse(line)
                if event is not None and (event.attempt, event.seq) not in self._seen:
                    self._seen.add((event.attempt, event.seq))
                    yield event


def session_events(session: Path) -> list[Event]:
    """Every event of a session's attempts, oldest attempt first: the last one wins per step."""
    attempts = session / "attempts"
    folders = sorted((p for p in attempts.glob("*") if p.name.isdigit()), key=lambda p: int(p.name))
    return [event for folder in folders for event in EventReader(folder).new()]


def parse(line: bytes) -> Event | None:
    """One event; None for a line that is none (a kill can cut one)."""
    try:
        return _EVENT.validate_json(line)
    except ValidationError:
        return None
