"""Uploads a pod's events, heartbeats and cause of its end to the store.

S3 cannot append: new whole lines become an object of their own, named by the file and the byte that
they begin at. Earlier lines of a pod of this attempt (a queue may suspend a Job and start its pods
again) are fetched first, so that the stream continues where it ended. The termination message is an
event of its own and an object beside the result.
"""

import re
import socket
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from ml_assets.errors import StorageError, StoreAway
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program.events import Failed, read_heartbeat
from ml_assets.spec.training_program.exit_codes import EXIT_DONE
from ml_assets.spec.training_program.pod import (
    EVENTS,
    PodHeartbeats,
    TerminationMessage,
    chunk_at,
    chunk_name,
    heartbeats_name,
    termination_name,
)
from ml_assets.store.retries import Deadline, persist
from ml_assets.store.s3.client import S3Place
from ml_assets.training.stop import BadRequest, Superseded

_MOST_BYTES = 8 << 20
_SECONDS_BETWEEN_BEATS = 5.0
_BETWEEN_LOOKS = 0.5
"""Here, where a look costs no request: what went wrong is acted on, and told, at once."""


def pause(age: float) -> float:
    """Seconds between two rounds of an attempt so many seconds old: one, and ten after an hour.

    A training of three days leaves some 30,000 objects, which another home reads in a minute.
    """
    return min(10.0, max(1.0, age / 360))


class Outbox:
    """One pod's part of an attempt.

    Args:
        folder: of the attempt, on this machine.
        place: of the attempt, in the store.
        index: of the pod.
    """

    def __init__(self, folder: Path, place: S3Place, index: int) -> None:
        self._folder = folder
        self._place = place
        self._index = index
        self._sent: dict[str, int] = {}
        self._waiting: dict[str, bytes] = {}
        """File -> a chunk whose answer did not come: it is sent again as it was."""
        self._looked: dict[str, int] = {}
        self._beaten, self._beats = float("-inf"), PodHeartbeats(beats=())
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, name="outbox", daemon=True)
        self.failed: list[Failed] = []
        """The failures that the ranks of this pod reported, since it began."""
        self.superseded: Superseded | None = None

    def begin(self, deadline: Deadline) -> None:
        """Bring what was told before, and carry from now on."""
        persist(self._bring, deadline)
        self._thread.start()

    def end(self, deadline: Deadline) -> None:
        """Send what is still left, and end the thread that sends.

        Raises:
            Superseded: another pod tells this attempt's story.
            StoreAway: they did not come through.
        """
        self._done.set()
        if self._thread.ident is not None:
            while self._thread.is_alive() and time.monotonic() < deadline.at:
                self._thread.join(0.2)
        if self.superseded is not None:
            raise self.superseded
        self._look()
        persist(self._carry, deadline)
        persist(self._put_beats, deadline)

    def _bring(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for item in self._place.items(EVENTS):
            found = chunk_at(item.name)
            if found is None:
                continue
            name, offset = found
            file = self._folder / name
            if offset != (file.stat().st_size if file.exists() else 0):
                continue  # it is here already
            with file.open("ab") as handle:
                handle.write(self._place.read(item.name) or b"")
            self._sent[name] = self._looked[name] = file.stat().st_size

    def _work(self) -> None:
        began = time.monotonic()
        carried = began
        while not self._done.wait(_BETWEEN_LOOKS):
            known = len(self.failed)
            self._look()
            now = time.monotonic()
            if len(self.failed) == known and now - carried < pause(now - began):
                continue
            carried = now
            try:
                self._carry()
                self._carry_beats()
            except Superseded:
                return
            except (StorageError, OSError) as error:  # away for a while: nothing is lost
                sys.stderr.write(f"[staging] events wait: {error}\n")

    def _look(self) -> None:
        """Read what went wrong before it is carried."""
        for file in self._files():
            lines = _whole_lines(file, self._looked.get(file.name, 0))
            self._looked[file.name] = self._looked.get(file.name, 0) + len(lines)
            for line in lines.splitlines():
                try:
                    self.failed.append(Failed.model_validate_json(line))
                except ValidationError:  # another kind, or a line that a kill has cut
                    continue

    def _carry(self) -> None:
        for file in self._files():
            while lines := self._next_of(file):
                sent = self._sent.get(file.name, 0)
                self._waiting[file.name] = lines
                if not self._place.write_new(chunk_name(file.name, sent), lines):
                    self.superseded = Superseded(
                        f"another pod with index {self._index} reports for"
                        f" {self._place.uri}: this one is an orphan, and writes nothing more"
                    )
                    raise self.superseded
                del self._waiting[file.name]
                self._sent[file.name] = sent + len(lines)

    def _next_of(self, file: Path) -> bytes:
        waiting = self._waiting.get(file.name)
        return waiting or _whole_lines(file, self._sent.get(file.name, 0))

    def _carry_beats(self) -> None:
        if time.monotonic() - self._beaten < _SECONDS_BETWEEN_BEATS:
            return
        self._beaten = time.monotonic()
        self._put_beats()

    def _put_beats(self) -> None:
        found = [read_heartbeat(file) for file in sorted(self._folder.glob("heartbeat.*.json"))]
        beats = PodHeartbeats(beats=tuple(beat for beat in found if beat is not None))
        if beats != self._beats:
            self._place.write(heartbeats_name(self._index), canonical_json(beats))
            self._beats = beats

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("events*.jsonl"))


def _whole_lines(file: Path, first: int) -> bytes:
    """Whole lines from a byte on, some at a time."""
    with file.open("rb") as handle:
        handle.seek(first)
        found = handle.read(_MOST_BYTES)
        if len(found) == _MOST_BYTES:
            found += handle.readline()
    return found[: found.rfind(b"\n") + 1]


POD_SEQ = 10**12
"""Numbers of a pod's own events begin here, above those of every rank and of the launcher."""
_OF_A_POD = 10**6
_TAIL_LINES = 40
_TAIL_CHARACTERS = 8_000
_ATTEMPT = re.compile(r"s3://.+/sessions/([a-z0-9][a-z0-9_-]{0,127})/attempts/([1-9]\d{0,8})")
_PATIENCE = 120.0
"""Seconds to ask again: by then the work is handed over, or cannot be."""


@dataclass(frozen=True)
class PodEnd:
    """The end of a pod: its code and the reason."""

    code: int
    """The true one; negative: a signal."""
    reason: str
    log: str = ""
    own: bool = False
    """No rank said it: the pod itself has to."""


class TerminationReporter:
    """Reports once why the pod ended, when nothing else is left to do.

    Args:
        folder: of the attempt, on this machine.
        place: of the attempt, in the store.
        index: of the pod.

    Raises:
        BadRequest: the place is no attempt's.
    """

    def __init__(self, folder: Path, place: S3Place, index: int) -> None:
        found = _ATTEMPT.fullmatch(place.uri)
        if found is None:
            raise BadRequest(
                f"{place.uri} is not the address of an attempt; expected"
                " s3://bucket/prefix/sessions/<session>/attempts/<n>/request.json"
            )
        self._session, self._attempt = found[1], int(found[2])
        self._folder, self._place, self._index = folder, place, index

    def report(self, end: PodEnd, outbox: Outbox, deadline: Deadline) -> None:
        """Report to the launcher; where the store stays away, the exit code alone has to do."""
        try:
            if end.own and end.code != EXIT_DONE:
                self._write_event(end)
            outbox.end(deadline)
            message = canonical_json(self._message(end))
            name = termination_name(self._index)
            persist(lambda: self._place.write(name, message), deadline, _PATIENCE)
        except (StoreAway, Superseded, OSError) as error:
            sys.stderr.write(f"[staging] the termination message was not delivered: {error}\n")

    def _message(self, end: PodEnd) -> TerminationMessage:
        log = "" if end.code == EXIT_DONE else "\n".join(end.log.splitlines()[-_TAIL_LINES:])
        return TerminationMessage(
            session=self._session,
            attempt=self._attempt,
            index=self._index,
            host=socket.gethostname(),
            code=end.code,
            reason=end.reason,
            log=log[-_TAIL_CHARACTERS:],
            staged_bytes=self._place.moved.bytes,
            time=datetime.now(UTC),
        )

    def _write_event(self, end: PodEnd) -> None:
        """An event in a file of its own, beside those of the ranks."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"events.pod{self._index}.jsonl"
        said = len(file.read_bytes().splitlines()) if file.exists() else 0
        event = Failed(
            session=self._session,
            attempt=self._attempt,
            seq=POD_SEQ + self._index * _OF_A_POD + said,
            time=datetime.now(UTC),
            exit_code=end.code,
            reason=end.reason,
            rank=self._index,
            step=None,
            detail="",
        )
        with file.open("ab") as handle:
            handle.write(event.model_dump_json().encode() + b"\n")
