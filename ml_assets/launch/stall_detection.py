"""Detects a stalled attempt: the heartbeats of all its ranks stopped."""

import time
from collections.abc import Callable
from pathlib import Path

from ml_assets.spec.training_program.events import heartbeat_file, read_heartbeat

_TIMES_PATIENCE = 10
"""A rank notices a hung peer within its patience. What outlasts that by far nobody noticed."""
_BETWEEN_LOOKS = 1.0
_NEWS_SECONDS = 60.0
"""By then what was told meanwhile has come: pods, too, wait before they ask a store again."""


class StallDetector:
    """Looks at an attempt now and then.

    Args:
        folder: of the attempt.
        procs: how many ranks leave heartbeats there.
        clock: monotonic seconds.
    """

    def __init__(
        self, folder: Path, procs: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._files = [heartbeat_file(folder, rank) for rank in range(procs)]
        self._clock = clock
        self._looked = float("-inf")
        self._since = clock()
        self._signs: list[object] = []

    def blind(self) -> None:
        """Note that nothing can be heard now: silence counts from a while after it can again."""
        self._since = self._clock() + _NEWS_SECONDS

    def noticed(self, told: int) -> str | None:
        """Return what stands still; None: there was a sign of life, or it may still come.

        Before the first heartbeat the program's own limits hold: it has to find its data first.

        Args:
            told: how many events came so far: each is a sign of life, too.
        """
        now = self._clock()
        if now - self._looked < _BETWEEN_LOOKS:
            return None
        self._looked = now
        beats = [beat for file in self._files if (beat := read_heartbeat(file)) is not None]
        signs = [told, *((beat.rank, beat.time) for beat in beats)]
        if signs != self._signs:
            self._signs, self._since = signs, now
        silent = now - self._since
        if not beats or silent < _TIMES_PATIENCE * max(beat.patience for beat in beats):
            return None
        steps = ", ".join(f"rank {beat.rank} at step {beat.step}" for beat in beats)
        return f"no heartbeat or event for {silent:.0f} s; last heartbeats: {steps}"
