"""How far the work is, read from the outside: what was published, which steps were taken, and when.

A mark is a thing that the work does once when nothing strikes: a state that it publishes, an
evaluation of a training, its end. How long it took from the mark before a fault to the first new
one after it, compared with rounds in which nothing struck there, is what the fault cost.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from ml_assets_tests.faults.history import of_sessions

BEGUN, ENDED = "begun", "ended"
_RESUMED = re.compile(r"resumed at step (\d+) ")


@dataclass
class Progress:
    """What one piece of work has reached so far.

    Args:
        home: where its trainings leave their events.
        published: the messages of the states of ``main``.
    """

    home: Path
    published: Callable[[], Iterable[str]]
    reached: dict[str, float] = field(default_factory=lambda: {BEGUN: time.monotonic()})
    """Mark -> when it was first seen."""
    again: int = 0
    """Steps that were taken, lost and taken again, as far as events and heartbeats tell."""
    _offsets: dict[Path, int] = field(default_factory=dict)
    _steps: dict[str, int] = field(default_factory=dict)
    """Session -> the last step that was seen of it."""

    def look(self) -> None:
        now = time.monotonic()
        times = Counter[str]()
        for message in self.published():
            times[message] += 1
            self.reached.setdefault(f"published: {message} ({times[message]})", now)
        for event in sorted(self._news(), key=lambda one: one["time"]):
            for mark in self._marks(event):
                self.reached.setdefault(mark, now)

    def ended(self) -> None:
        self.reached.setdefault(ENDED, time.monotonic())

    def position(self, way: dict[str, float]) -> float:
        """Where the work is on a way: a mark, and the time since, as far as the next mark.

        Args:
            way: when each mark was reached where nothing struck.
        """
        last = max((mark for mark in self.reached if mark in way), key=way.__getitem__)
        ahead = min((at for at in way.values() if at > way[last]), default=way[last])
        return min(way[last] + time.monotonic() - self.reached[last], ahead)

    @property
    def newest(self) -> float:
        return max(self.reached.values())

    def _news(self) -> Iterator[dict[str, Any]]:
        for file in of_sessions(self.home, "*/attempts/*/*.json*"):
            if file.name.startswith("heartbeat."):
                yield from self._beat(file)
            elif file.name == "events.jsonl":
                yield from self._lines(file)

    def _beat(self, file: Path) -> Iterator[dict[str, Any]]:
        try:
            changed = file.stat().st_mtime_ns
            if self._offsets.get(file) != changed:
                self._offsets[file] = changed
                yield {"session": file.parts[-4], **json.loads(file.read_bytes())}
        except (OSError, ValueError):  # it is gone, or half written
            return

    def _lines(self, file: Path) -> Iterator[dict[str, Any]]:
        with file.open("rb") as events:
            events.seek(self._offsets.get(file, 0))
            for line in events:
                if not line.endswith(b"\n"):
                    return
                self._offsets[file] = self._offsets.get(file, 0) + len(line)
                try:
                    yield json.loads(line)
                except ValueError:  # a kill has cut it
                    continue

    def _marks(self, event: dict[str, Any]) -> Iterator[str]:
        session, step, kind = event["session"], event.get("step"), event.get("kind")
        verb = session.split("-")[-2]
        resumed = _RESUMED.match(event.get("message", ""))
        if resumed or kind == "first_rows":
            at = int(resumed[1]) if resumed else 0
            self.again += max(0, self._steps.get(session, 0) - at)
            self._steps[session] = at
        elif step is not None and kind in (None, "metrics"):
            self._steps[session] = max(step, self._steps.get(session, 0))
        if kind == "metrics":
            yield f"{verb}: step {step}"
        elif kind == "result":
            yield f"{verb}: its result"


@dataclass
class Pace:
    """How long it takes to reach a mark from the one before it, where nothing strikes."""

    seen: dict[str, list[float]] = field(default_factory=dict)
    way: dict[str, float] = field(default_factory=dict)
    """Mark -> seconds after the beginning, in the first round that was learned from."""

    def learn(self, reached: dict[str, float], strikes: Iterable[float] = ()) -> None:
        """Take what was reached in a round, but for what faults may have kept."""
        struck, marks = list(strikes), sorted(reached.items(), key=lambda one: one[1])
        self.way = self.way or {mark: at - reached[BEGUN] for mark, at in marks}
        for (_, before), (mark, at) in pairwise(marks):
            if not any(before <= strike <= at for strike in struck):
                self.seen.setdefault(mark, []).append(at - before)

    def lost(self, reached: dict[str, float], strike: float) -> float | None:
        """Seconds that a fault cost; None where nothing new was reached after it."""
        before = max(at for at in reached.values() if at <= strike)
        after = min(((at, m) for m, at in reached.items() if at > strike), default=None)
        if after is None or after[1] not in self.seen:
            return None
        return max(0.0, after[0] - before - median(self.seen[after[1]]))
