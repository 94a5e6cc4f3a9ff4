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
    keys = [_mix(np.array([_key(seed, epoch, number)], np.uint64))[0] for number in range(_ROUNDS)]
    found = _feistel(positions.astype(np.uint64), half, keys)
    outside = found >= rows
    while outside.any():
        found[outside] = _feistel(found[outside], half, keys)
        outside = found >= rows
    return found.astype(np.int64)


def microbatch_seed(seed: int, step: int, microbatch: int) -> int:
    """The seed of everything random in one microbatch."""
    value = np.array([_key(seed, step, microbatch + 1_000_003)], np.uint64)
    return int(_mix(value)[0] >> np.uint64(1))


def _key(seed: int, first: int, second: int) -> int:
    return (
        seed * 0x9E3779B97F4A7C15 + first * 0xC2B2AE3D27D4EB4F + second * 0x165667B19E3779F9
    ) % 2**64


def _feistel(values: NDArray[np.uint64], half: int, keys: list[np.uint64]) -> NDArray[np.uint64]:
    mask = np.uint64((1 << half) - 1)
    left, right = values >> np.uint64(half), values & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << np.uint64(half)) | right


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finalizer (Steele, Lea, Flood, 2014)."""
    with np.errstate(over="ignore"):
        x = values * np.uint64(0xFF51AFD7ED558CCD)
        x ^= x >> np.uint64(33)
        x = x * np.uint64(0xC4CEB9FE1A85EC53)
        x ^= x >> np.uint64(33)
    return x
