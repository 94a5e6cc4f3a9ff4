"""Reads the event stream: typed, in order, each event once."""

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ml_assets.spec.training_program.events import Event, Lost, Placed, Warning
from ml_assets.spec.training_program.identity import NodePlace
from ml_assets.spec.training_program.pod import EVENTS_FILE

LAUNCHER_FILE = "events.launcher.jsonl"
_LAUNCHER_SEQ = 10**15
"""The launcher's own numbers in an attempt begin here, above those of every rank."""
_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


class EventReader:
    """Reads an attempt's files as they grow; a line that is still being written waits."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._seen: set[tuple[int, int]] = set()

    def new(self) -> Iterator[Event]:
        """Whole events that were not given before: rank 0's, then the launcher's and other ranks'.

        Rank 0 writes ``events.jsonl``; who else has something to say has a file of its own beside.
        """
        for file in sorted(self._folder.glob("events*.jsonl"), key=lambda f: f.name != EVENTS_FILE):
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


class SessionReader:
    """Reads a session's attempts, oldest first. What an older one adds later does not count."""

    def __init__(self, session: Path) -> None:
        self._session = session
        self._attempt = 0
        self._reader: EventReader | None = None

    def new(self) -> Iterator[Event]:
        """Whole events that were not given before: the last attempt wins per step."""
        for number in attempt_numbers(self._session):
            if number < self._attempt:
                continue
            if self._reader is None or number > self._attempt:
                self._attempt = number
                self._reader = EventReader(self._session / "attempts" / str(number))
            yield from self._reader.new()


def attempt_numbers(session: Path) -> list[int]:
    """Numbers of a session's attempts, oldest first."""
    return sorted(int(p.name) for p in (session / "attempts").glob("*") if p.name.isdigit())


def session_events(session: Path) -> list[Event]:
    """Every event of a session's attempts, oldest attempt first: the last one wins per step."""
    return list(SessionReader(session).new())


def avoided_nodes(events: Sequence[Event]) -> tuple[str, ...]:
    """Nodes that a session's newest attempt stays away from, as whoever made it wrote down."""
    lost = [e.lost for e in events if isinstance(e, Warning) and e.lost is not None]
    return lost[-1].avoid if lost else ()


def append_warning(
    folder: Path, session: str, attempt: int, message: str, lost: Lost | None = None
) -> None:
    """The launcher's own word in an attempt's stream, so that followers and replays have it too."""
    _append(folder, Warning(**_head(folder, session, attempt), message=message, lost=lost))


def append_places(folder: Path, session: str, attempt: int, places: Sequence[NodePlace]) -> None:
    """Where a cluster put the nodes of an attempt, in its stream."""
    _append(folder, Placed(**_head(folder, session, attempt), places=tuple(places)))


def _head(folder: Path, session: str, attempt: int) -> dict[str, Any]:
    file = folder / LAUNCHER_FILE
    written = len(file.read_bytes().splitlines()) if file.is_file() else 0
    return {
        "session": session,
        "attempt": attempt,
        "seq": _LAUNCHER_SEQ + written,
        "time": datetime.now(UTC),
    }


def _append(folder: Path, event: Event) -> None:
    file = folder / LAUNCHER_FILE
    with file.open("ab") as handle:
        handle.write(event.model_dump_json().encode() + b"\n")
        handle.flush()
        os.fsync(handle.fileno())


def parse(line: bytes) -> Event | None:
    """One event; None for a line that is none (a kill can cut one)."""
    try:
        return _EVENT.validate_json(line)
    except ValidationError:
        return None
