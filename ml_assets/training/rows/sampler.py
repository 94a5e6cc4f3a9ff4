"""Which rows a microbatch holds: a pure function of (seed, epoch, position), never of the rank.

A Feistel network permutes the row numbers without an array (Black and Rogaway, "Ciphers with
Arbitrary Finite Domains", 2002: cycle walking).
"""

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 6


def permuted(positions: NDArray[np.int64], rows: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The row numbers at ``positions`` of the epoch's order; a bijection of ``range(rows)``."""
    half = max(1, ((rows - 1).bit_length() + 1) // 2)
    keys = [np.uint64(_mixed(_key(seed, epoch, number))) for number in range(_ROUNDS)]
    found = _feistel(positions.astype(np.uint64), half, keys)
    outside = found >= rows
    while outside.any():
        found[outside] = _feistel(found[outside], half, keys)
        outside = found >= rows
    return found.astype(np.int64)


def microbatch_seed(seed: int, step: int, microbatch: int) -> int:
    """The seed of everything random in one microbatch."""
    return _mixed(_key(seed, step, microbatch + 1_000_003)) >> 1


def _key(seed: int, first: int, second: int) -> int:
    return (
        seed * 0x9E3779B97F4A7C15 + first * 0xC2B2AE3D27D4EB4F + second * 0x165667B19E3779F9
    ) % 2**64


def _feistel(values: NDArray[np.uint64], half: int, keys: list[np.uint64]) -> NDArray[np.uint64]:
    bits, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = values >> bits, values & mask
    for key in keys:
        mixed = right ^ key
        _mix(mixed)
        mixed &= mask
        mixed ^= left
        left, right = right, mixed
    return (left << bits) | right


_FIRST, _SECOND, _SHIFT = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 33
"""The constants of MurmurHash3's 64-bit finalizer (Appleby, 2011)."""


def _mix(values: NDArray[np.uint64]) -> None:
    """Spread every bit of each value over all its bits, in place."""
    values *= np.uint64(_FIRST)
    values ^= values >> np.uint64(_SHIFT)
    values *= np.uint64(_SECOND)
    values ^= values >> np.uint64(_SHIFT)


def _mixed(value: int) -> int:
    """The same of one number: numpy takes ten times as long for it."""
    value = value * _FIRST % 2**64
    value ^= value >> _SHIFT
    value = value * _SECOND % 2**64
    return value ^ value >> _SHIFT
