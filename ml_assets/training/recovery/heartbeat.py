"""A rank's sign of life: a small file beside the events, written at most once a second."""

import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from ml_assets.spec.program import TrainRequest
from ml_assets.spec.program.events import Heartbeat, heartbeat_file
from ml_assets.training.recovery.generation import generation

_BETWEEN_BEATS = 1.0


class Heart:
    """Leaves this rank's heartbeat, and reads those of the others."""

    def __init__(self, request: TrainRequest, rank: int, patience: float) -> None:
        """``patience``: see ``Heartbeat``; whoever changes it may."""
        self.patience = patience
        self.step = 0
        self._attempt = request.attempt
        self._rank = rank
        self._folder = Path(request.output.events).parent
        self._beaten = float("-inf")

    def beat(self, *, now: bool = False) -> None:
        """Leave a heartbeat; no fsync: that of a dead machine means nothing.

        Args:
            now: also where the one before is less than a second old.
        """
        if not now and time.monotonic() - self._beaten < _BETWEEN_BEATS:
            return
        self._beaten = time.monotonic()
        beat = Heartbeat(
            attempt=self._attempt,
            generation=generation(),
            rank=self._rank,
            pid=os.getpid(),
            host=socket.gethostname(),
            step=self.step,
            time=datetime.now(UTC),
            patience=self.patience,
        )
        file = heartbeat_file(self._folder, self._rank)
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".draft")
        draft.write_text(beat.model_dump_json())
        os.replace(draft, file)

    def of(self, rank: int) -> Heartbeat | None:
        """The newest heartbeat of a rank that was started together with this one."""
        try:
            data = heartbeat_file(self._folder, rank).read_bytes()
            found = Heartbeat.model_validate_json(data)
        except (OSError, ValidationError):
            return None
        return found if found.generation == generation() else None
