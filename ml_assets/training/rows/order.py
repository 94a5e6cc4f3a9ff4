"""Decides which rows an epoch draws, and in which order: pure functions of (seed, epoch, place).

Neither the rank nor the number of processes is in it. A Feistel network permutes the draws without
an array (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002: cycle walking). An epoch
draws every row once, and with oversampling the rows of a rare class again: draw ``units + n`` is
the n-th further draw of such a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ml_assets.spec.training_program import ShardSchema
from ml_assets.training.rows.arrays import SplitArrays
from ml_assets.training.stop import BadData

_ROUNDS = 6
AT_ONCE = 1 << 20
"""The order of so many rows is made once an epoch, and kept: 8 MB."""


def permuted(positions: NDArray[np.int64], rows: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The row numbers at ``positions`` of the epoch's order; a bijection of ``range(rows)``."""
    if rows > AT_ONCE:
        return _walked(positions, rows, seed, epoch)
    return _whole(rows, seed, epoch)[positions]


@lru_cache(maxsize=2)
def _whole(rows: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return _walked(np.arange(rows), rows, seed, epoch)


def _walked(positions: NDArray[np.int64], rows: int, seed: int, epoch: int) -> NDArray[np.int64]:
    half = max(1, ((rows - 1).bit_length() + 1) // 2)
    rounds = _rounds(half, seed, epoch)
    found = _feistel(positions, half, rounds)
    outside = np.flatnonzero(found >= rows)
    while len(outside):
        again = _feistel(found[outside], half, rounds)
        found[outside] = again
        outside = outside[again >= rows]
    return found


def microbatch_seed(seed: int, step: int, microbatch: int) -> int:
    """The seed of everything random in one microbatch."""
    return mixed(key(seed, step, microbatch + 1_000_003)) >> 1


def key(seed: int, first: int, second: int) -> int:
    """A number of 64 bits for each three numbers."""
    return (
        seed * 0x9E3779B97F4A7C15 + first * 0xC2B2AE3D27D4EB4F + second * 0x165667B19E3779F9
    ) % 2**64


@lru_cache(maxsize=2)
def _rounds(half: int, seed: int, epoch: int) -> tuple[NDArray[np.int64], ...]:
    """What each round makes of each half: half the bits of a row's number have few values."""
    found: list[NDArray[np.int64]] = []
    for number in range(_ROUNDS):
        values = np.arange(1 << half, dtype=np.uint64) ^ np.uint64(mixed(key(seed, epoch, number)))
        _mix(values)
        found.append((values & np.uint64((1 << half) - 1)).astype(np.int64))
    return tuple(found)


def _feistel(
    values: NDArray[np.int64], half: int, rounds: tuple[NDArray[np.int64], ...]
) -> NDArray[np.int64]:
    left, right = values >> half, values & ((1 << half) - 1)
    for one in rounds:
        found = one[right]
        found ^= left
        left, right = right, found
    left <<= half
    left |= right
    return left


_FIRST, _SECOND, _SHIFT = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 33
"""The constants of MurmurHash3's 64-bit finalizer (Appleby, 2011)."""


def _mix(values: NDArray[np.uint64]) -> None:
    """Spread every bit of each value over all its bits, in place."""
    values *= np.uint64(_FIRST)
    values ^= values >> np.uint64(_SHIFT)
    values *= np.uint64(_SECOND)
    values ^= values >> np.uint64(_SHIFT)


def mixed(value: int) -> int:
    """The same of one number: numpy takes ten times as long for it."""
    value = value * _FIRST % 2**64
    value ^= value >> _SHIFT
    value = value * _SECOND % 2**64
    return value ^ value >> _SHIFT


@dataclass(frozen=True)
class OversampleIndex:
    """The rows of one rare class, and how many further draws an epoch makes of them in all.

    Each is drawn equally often, or once more: who comes once more goes round from epoch to epoch.
    """

    label: int
    """Place of the class; binary: 1 is the positive."""
    rows: NDArray[np.int64]
    draws: int

    @property
    def lift(self) -> float:
        """The draws that an epoch makes of such a row, on average."""
        return 1 + self.draws / len(self.rows)

    def drawn(self, places: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """The rows of the further draws with these numbers."""
        more = self.draws % len(self.rows)
        return self.rows[(places + epoch * more) % len(self.rows)]


def oversample_index(
    rows: SplitArrays, schema: ShardSchema, share: float | None
) -> tuple[OversampleIndex, ...]:
    """The rows to draw again, so that each class makes at least ``share`` of an epoch; None: none.

    Raises:
        BadData: a class has no row to draw.
    """
    if share is None:
        return ()
    names = schema.classes or ("false", "true")
    counts = np.zeros(len(names), np.int64)
    for labels in rows.labels():
        counts += np.bincount(labels, minlength=len(names))
    missing = [name for name, count in zip(names, counts, strict=True) if not count]
    if missing:
        raise BadData(
            f"training.oversample is {share:g}, but the training split has no row of the class"
            f" {missing}: there is nothing to draw. Take a longer training split, or remove it."
        )
    targets = _targets(counts, share)
    rare = np.flatnonzero(targets > counts)
    places: dict[int, list[NDArray[np.int64]]] = {int(number): [] for number in rare}
    start = 0
    for labels in rows.labels():
        for number, found in places.items():
            found.append(start + np.flatnonzero(labels == number))
        start += len(labels)
    return tuple(
        OversampleIndex(number, np.concatenate(found), int(targets[number] - counts[number]))
        for number, found in places.items()
    )


def drawn_rows(
    draws: NDArray[np.int64], units: int, oversampled: Sequence[OversampleIndex], epoch: int
) -> NDArray[np.int64]:
    """The rows behind an epoch's draws: the first ``units`` are the rows themselves."""
    if not oversampled:
        return draws
    rows, first = draws.copy(), units
    for more in oversampled:
        mine = (draws >= first) & (draws < first + more.draws)
        rows[mine] = more.drawn(draws[mine] - first, epoch)
        first += more.draws
    return rows


def _targets(counts: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """[classes] draws of an epoch: those of a common class are its rows."""
    rare = np.zeros(len(counts), bool)
    while True:
        whole = counts[~rare].sum() / (1 - share * rare.sum())
        below = ~rare & (counts < share * whole * (1 - 1e-9))
        if not below.any():
            return np.where(rare, np.ceil(share * whole), counts).astype(np.int64)
        rare |= below
