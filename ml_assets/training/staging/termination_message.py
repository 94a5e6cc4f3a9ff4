"""A pod's last word: why it ended, as an event of its own and as an object beside the result."""

import re
import socket
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ml_assets.errors import StoreAway
from ml_assets.spec.canonical import canonical_json
from ml_assets.spec.program.events import Failed
from ml_assets.spec.program.exit_codes import EXIT_DONE
from ml_assets.spec.program.pod import TerminationMessage, termination_name
from ml_assets.store.s3.client import S3Place
from ml_assets.training.staging.outbox import Outbox
from ml_assets.training.staging.persistence import Deadline, persist
from ml_assets.training.stop import BadRequest, Superseded

POD_SEQ = 10**12
"""Numbers of a pod's own events begin here, above those of every rank and of the launcher."""
_OF_A_POD = 10**6
_TAIL_LINES = 40
_TAIL_CHARACTERS = 8_000
_ATTEMPT = re.compile(r"s3://.+/sessions/([a-z0-9][a-z0-9_-]{0,127})/attempts/([1-9]\d{0,8})")
_PATIENCE = 120.0
"""Seconds to ask again: by then the work is handed over, or cannot be."""


@dataclass(frozen=True)
class End:
    """How a pod ended."""

    code: int
    """The true one; negative: a signal."""
    reason: str
    log: str = ""
    own: bool = False
    """No rank said it: the pod itself has to."""


class LastWord:
    """Said once, when nothing else is left to do.

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
                f"{place.uri} is no place of an attempt; expected"
                " s3://bucket/prefix/sessions/<session>/attempts/<n>/request.json"
            )
        self._session, self._attempt = found[1], int(found[2])
        self._folder, self._place, self._index = folder, place, index

    def say(self, end: End, outbox: Outbox, deadline: Deadline) -> None:
        """Tell the launcher; where the store stays away, the exit code alone has to do."""
        try:
            if end.own and end.code != EXIT_DONE:
                self._tell(end)
            outbox.end(deadline)
            word = canonical_json(self._word(end))
            persist(
                lambda: self._place.write(termination_name(self._index), word), deadline, _PATIENCE
            )
        except (StoreAway, Superseded, OSError) as error:
            sys.stderr.write(f"[staging] the last word was not heard: {error}\n")

    def _word(self, end: End) -> TerminationMessage:
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

    def _tell(self, end: End) -> None:
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
