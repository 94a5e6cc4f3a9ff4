"""Permutes the rows of an epoch: pure functions of (seed, epoch, place), and no array of them.

Neither the rank nor the number of processes is in it. A Feistel network permutes the draws (Black
and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002: cycle walking). The training program
draws by it, and the launcher counts by it how many blocks a process reads at a time.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

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
