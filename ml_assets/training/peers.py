"""Informs a process about its peers: which start of the attempt this is, who failed, who is alive.

torchrun restarts all processes when one fails, whatever its reason. A fault that a restart cannot
fix is in the attempt's events: the new processes read it and end at once as the old ones did.
"""

import os
import socket
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from ml_assets.spec.training_program import TrainRequest
from ml_assets.spec.training_program.events import Failed, Heartbeat, heartbeat_file, read_heartbeat
from ml_assets.spec.training_program.exit_codes import EXIT_BUG, VERDICTS


def generation() -> int:
    """0 for the first start of an attempt's processes; counted by torchrun."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def ranks_here() -> range:
    """The ranks of this machine, whose files it sees, as torchrun numbered them."""
    first = int(os.environ.get("RANK", "0")) - int(os.environ.get("LOCAL_RANK", "0"))
    return range(first, first + int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def standing_verdict(
    failed: Sequence[Failed], world: int, here: Collection[int] = ()
) -> int | None:
    """The exit code that a new start would only repeat; None: it may mend what happened.

    A bug counts where every rank of the last start said why it ended: a rank that was killed says
    nothing, and what the others then met is no bug. Of several machines each hears its own ranks
    alone: there it counts when it came again.

    Args:
        failed: the attempt's error events.
        world: how many ranks there are.
        here: those of this machine.
    """
    # the last start that said anything: one that only repeated a verdict is silent
    spoke = max((event.generation for event in failed), default=0)
    last = [event for event in failed if event.generation == spoke]
    codes = {event.exit_code for event in last}
    if codes & VERDICTS:
        return min(codes & VERDICTS)
    before = [event for event in failed if event.generation == spoke - 1]
    again = bool(here) and _is_bug(last, here) and _is_bug(before, here)
    return EXIT_BUG if again or _is_bug(last, range(world)) else None


def _is_bug(failed: Sequence[Failed], ranks: Collection[int]) -> bool:
    """True where every one of the ranks said why it ended, and one of them met a bug."""
    told = {event.rank for event in failed}
    return told >= set(ranks) and EXIT_BUG in {event.exit_code for event in failed}


def failures(events: Path) -> list[Failed]:
    """Read the failures that every rank reported in this attempt.

    Args:
        events: rank 0's file; the others' lie beside it.
    """
    found: list[Failed] = []
    for file in sorted(events.parent.glob(f"{events.stem}*{events.suffix}")):
        for line in file.read_bytes().splitlines():
            try:
                found.append(Failed.model_validate_json(line))
            except ValidationError:  # another kind, or a line that a kill has cut
                continue
    return found


_SECONDS_BETWEEN_BEATS = 1.0


class HeartbeatWriter:
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
        if not now and time.monotonic() - self._beaten < _SECONDS_BETWEEN_BEATS:
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
        found = read_heartbeat(heartbeat_file(self._folder, rank))
        return found if found and found.generation == generation() else None
