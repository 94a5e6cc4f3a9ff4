"""Decides how long a rank waits for the others, and ends one that no longer answers.

gloo waits half an hour by default. Here the first step may take five minutes; once this process
has taken one, a silent peer is noticed within ``patience`` seconds. A peer that dies is noticed at
once: its connection closes.
"""

import os
import signal
import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from ml_assets.spec.training_program import TrainRequest
from ml_assets.training.distributed.ranks import JOIN_SECONDS, Ranks, wait_at_most
from ml_assets.training.peers import HeartbeatWriter
from ml_assets.training.stop import PeerLost, PeerSilent, Stopped, peer_trouble

QUIET_SECONDS = 720.0
"""Patience outside the steps, where ranks are silent while they read and write whole states. The
launcher takes ten times that for a standstill: as long as a save may wait for a rank."""
_MEDIAN_STEPS = 20
_STEPS_REMEMBERED = 64


def patience(steps: Sequence[float], least: float) -> float:
    """Seconds to wait for a peer: 20 times the median step, and never less than ``least``."""
    return max(least, _MEDIAN_STEPS * statistics.median(steps))


class Watch:
    """Shows that this rank is alive, and shortens its patience with the steps that it takes."""

    def __init__(self, request: TrainRequest, ranks: Ranks) -> None:
        spec = request.training
        # a shape that comes for the first time is compiled within its step
        compiles = JOIN_SECONDS if spec.compile else 0.0
        self._least = max(spec.hang_timeout_seconds, compiles)
        self._ranks = ranks
        self._heart = HeartbeatWriter(request, ranks.rank, QUIET_SECONDS)
        self._steps: list[float] = []
        self._taken = 0
        self._since = time.monotonic()
        self._heart.beat(now=True)  # those of the start before this one are of its steps

    def begin(self, step: int) -> None:
        """Training begins, or goes on, at this step."""
        self._heart.patience, self._heart.step = JOIN_SECONDS, step
        self._since = time.monotonic()
        self._heart.beat(now=True)

    def step_taken(self, step: int) -> None:
        """A step came to its end on all ranks; the shorter patience holds from the first one on."""
        now = time.monotonic()
        self._steps = [*self._steps[1 - _STEPS_REMEMBERED :], now - self._since]
        self._since, self._heart.step = now, step
        self._taken += 1
        learnt = self._taken & (self._taken - 1) == 0  # after 1, 2, 4, 8, ... steps
        if learnt:
            self._heart.patience = patience(self._steps, self._least)
            wait_at_most(self._heart.patience, self._ranks)
        self._heart.beat(now=learnt)

    def alive(self) -> None:
        """Called now and then by what takes long between two steps."""
        self._heart.beat()

    def quiet(self) -> None:
        """The steps are over: what comes now may be silent for long."""
        self._heart.patience = QUIET_SECONDS
        self._heart.beat(now=True)

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """An error within it is explained at once: others may wait for the peer that is silent."""
        try:
            yield
        except BaseException as error:
            self.explain(error)
            raise

    def explain(self, error: BaseException) -> None:
        """Return where an error has nothing to do with the loss of a peer.

        Raises:
            PeerSilent: a rank did not answer in time; it is ended where it is on this machine.
            PeerLost: the connection to a rank closed.
        """
        step = self._heart.step
        kind = None if isinstance(error, Stopped) else peer_trouble(error)
        if kind is PeerSilent:
            silent = self._end_silent_peers() or "another process"
            raise PeerSilent(f"waited {self._heart.patience:g} s for {silent}", step) from error
        if kind is PeerLost:
            reason = "the connection to another process of the training closed"
            raise PeerLost(reason, step) from error

    def _end_silent_peers(self) -> str:
        """End the ranks whose heartbeat stopped: torchrun alone would wait 30 s more for them."""
        told: list[str] = []
        for rank in set(range(self._ranks.world)) - {self._ranks.rank}:
            beat = self._heart.of(rank)
            if beat is None:
                continue
            age = (datetime.now(UTC) - beat.time).total_seconds()
            if age < 0.9 * self._heart.patience:
                continue
            last = f"{age:.0f} s ago at step {beat.step}"
            told.append(f"rank {rank}, whose last heartbeat came {last}")
            if beat.host == socket.gethostname():
                _kill(beat.pid)
        return "; ".join(told)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
