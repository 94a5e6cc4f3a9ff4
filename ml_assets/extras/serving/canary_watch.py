"""Judges a model in canary by its traffic alone: errors, latency, predictions.

Each is compared with the spec's bound and with what chance explains, because the same question is
asked every second. Pure functions of counts: nothing here reads a clock, a store or a model.
"""

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ml_assets.errors import counted
from ml_assets.spec.rollout import LOOKED_AT, AbortSpec
from ml_assets.spec.training import Task

Floats = NDArray[np.float64]
_Z = 3.3
"""Deviations of chance that are allowed: one false alarm in two thousand looks."""
_ALPHA = 1e-3
_SLOW = 0.95
"""The quantile of the champion's times that an answer is held to."""
_SLACK = 0.02
"""A probability that moves by less has not moved; of a number a tenth of the champion's spread."""


@dataclass
class RecentAnswers:
    """Holds what one model answered lately."""

    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=LOOKED_AT))
    predictions: deque[Floats] = field(default_factory=lambda: deque(maxlen=LOOKED_AT))
    """[outputs] of each row."""
    failed: deque[bool] = field(default_factory=lambda: deque(maxlen=LOOKED_AT))

    def answered(self, predictions: Floats, seconds: float, times: int | None = None) -> None:
        """Rows [rows, outputs] of one request.

        Args:
            times: how often its time is remembered; None: once for each row.
        """
        self.predictions.extend(predictions)
        self.seconds.extend([seconds] * (len(predictions) if times is None else times))
        self.failed.extend([False] * len(predictions))

    def could_not(self, rows: int, seconds: float) -> None:
        """Count the rows of a request that got no answer."""
        self.seconds.extend([seconds] * rows)
        self.failed.extend([True] * rows)


@dataclass
class CanaryWatch:
    """The model in canary beside the champion, as traffic shows them."""

    limits: AbortSpec
    task: Task
    champion: RecentAnswers = field(default_factory=RecentAnswers)
    canary: RecentAnswers = field(default_factory=RecentAnswers)
    share: float = 0.05
    """The share of the rows that the canary answers."""
    _owed: float = 0.0
    """Times of the champion that are to be remembered, and parts of one."""

    def champion_answered(self, predictions: Floats, seconds: float) -> None:
        """Rows [rows, outputs] of one request.

        As many of its times are remembered as of the canary's, so that both are of the same
        minutes: a machine that was slow for a moment was slow for both.
        """
        self._owed += len(predictions) * min(1.0, self.share / (1 - self.share))
        times = int(self._owed)
        self._owed -= times
        self.champion.answered(predictions, seconds, times)

    def reason(self) -> str | None:
        """Return why the canary is bad, in a sentence; None where nothing shows that it is."""
        if min(len(self.canary.failed), len(self.champion.failed)) < self.limits.rows:
            return None
        return self._errors() or self._latency() or self._shift()

    def _errors(self) -> str | None:
        failed, rows = sum(self.canary.failed), len(self.canary.failed)
        if surely(failed, rows) <= self.limits.errors:
            return None
        return (
            f"errors: it could not answer {failed} of {counted(rows, 'row')},"
            f" {self.limits.errors:.1%} are allowed"
        )

    def _latency(self) -> str | None:
        if len(self.champion.seconds) < self.limits.rows:
            return None
        usual = float(np.quantile(np.array(self.champion.seconds), _SLOW))
        bound = self.limits.slower * usual
        slow, rows = sum(one > bound for one in self.canary.seconds), len(self.canary.seconds)
        if surely(slow, rows) <= 1 - _SLOW:
            return None
        return (
            f"latency: {slow} of {counted(rows, 'row')} took more than {1000 * bound:.0f} ms,"
            f" {self.limits.slower:g} times the champion's 95th percentile"
        )

    def _shift(self) -> str | None:
        if len(self.canary.predictions) < self.limits.rows:
            return None
        of, against = np.array(self.canary.predictions), np.array(self.champion.predictions)
        if of.shape[1] != against.shape[1]:
            return f"predictions: it has {of.shape[1]} outputs, the champion {against.shape[1]}"
        outputs = of.shape[1]
        chance = math.sqrt(
            math.log(2 * outputs / _ALPHA) / 2 * (1 / len(of) + 1 / len(against))
        )  # Dvoretzky, Kiefer, Wolfowitz, of two samples
        moved = [gap(of[:, n], against[:, n], self._slack(against[:, n])) for n in range(outputs)]
        if max(moved) <= self.limits.shift + chance:
            return None
        return (
            f"predictions: the share below some value differs by {max(moved):.2f} from the"
            f" champion's, {self.limits.shift:g} is allowed and {chance:.2f} may be chance"
            f" ({counted(len(of), 'row')})"
        )

    def _slack(self, champion: Floats) -> float:
        probability = self.task in ("binary", "multiclass")
        return _SLACK if probability else float(champion.std()) / 10


def surely(hits: int, rows: int) -> float:
    """The share that hits out of rows show at least (Wilson's bound)."""
    if not rows or not hits:
        return 0.0
    share, square = hits / rows, _Z * _Z
    middle = share + square / (2 * rows)
    wide = _Z * math.sqrt(share * (1 - share) / rows + square / (4 * rows * rows))
    return (middle - wide) / (1 + square / rows)


def gap(one: Floats, other: Floats, slack: float) -> float:
    """The largest difference of the shares below a value, where a move by ``slack`` is none."""
    return max(_above(one, other, slack), _above(other, one, slack))


def _above(one: Floats, other: Floats, slack: float) -> float:
    """How far the share of ``one`` below a value exceeds that of ``other`` below it and slack."""
    at = np.sort(one)
    below = np.arange(1, len(at) + 1) / len(at)
    reached = np.searchsorted(np.sort(other), at + slack, side="right") / len(other)
    return float(max(0.0, (below - reached).max()))
