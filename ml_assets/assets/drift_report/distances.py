"""Computes how far two histograms are apart, and how far by chance alone, for all columns at once.

Every function takes counts [..., columns, bins] of the new rows and [columns, bins] of the
reference, padded with zeros where ``real`` is false.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.int64] | int

_SMOOTH = 0.5
"""Added to every bin: an empty one is rare, not impossible."""
KS_NOISE = 0.822
"""E[D^2] n of a Kolmogorov-Smirnov distance of equal distributions: pi^2/12 (Kolmogorov)."""


@dataclass(frozen=True)
class Distances:
    """The distances of each column, [..., columns]."""

    psi: Floats
    ks: Floats
    """Zero where bins have no order."""
    js: Floats


def distances(
    new: NDArray[np.int64], reference: NDArray[np.int64], real: Mask, ordered: Mask
) -> Distances:
    """PSI, Kolmogorov-Smirnov and Jensen-Shannon distance of histograms.

    Args:
        new: [..., columns, bins].
        reference: [..., columns, bins].
        real: [columns, bins] which cells are bins.
        ordered: [columns] whether the bins have an order; the last bin is that of nulls.
    """
    p, q = shares(new, real), shares(reference, real)
    ratio = np.log(p / q, where=real, out=np.zeros_like(p))
    psi = np.where(real, (p - q) * ratio, 0.0).sum(axis=-1)
    middle = (p + q) / 2
    left = np.where(real, p * np.log2(p / middle, where=real, out=np.zeros_like(p)), 0.0)
    right = np.where(real, q * np.log2(q / middle, where=real, out=np.zeros_like(p)), 0.0)
    divergence = (left.sum(axis=-1) + right.sum(axis=-1)) / 2
    return Distances(
        psi=psi,
        ks=np.where(ordered, _ks(new, reference, real), 0.0),
        js=np.sqrt(np.maximum(divergence, 0.0)),
    )


def shares(counts: NDArray[np.int64], real: Mask) -> Floats:
    """[..., columns, bins] smoothed shares; one in the padding, so that it divides."""
    smooth = counts + np.where(real, _SMOOTH, 0.0)
    return np.where(real, smooth / smooth.sum(axis=-1, keepdims=True), 1.0)


def _ks(new: NDArray[np.int64], reference: NDArray[np.int64], real: Mask) -> Floats:
    """The largest gap of the cumulated shares, nulls left out: a little below that of the rows."""
    sizes = real.sum(axis=-1)
    values = np.arange(real.shape[-1]) < (sizes - 1)[:, None]
    gaps = _cumulated(new, values) - _cumulated(reference, values)
    return np.abs(np.where(values, gaps, 0.0)).max(axis=-1, initial=0.0)


def _cumulated(counts: NDArray[np.int64], values: Mask) -> Floats:
    kept = np.where(values, counts, 0)
    total = np.maximum(kept.sum(axis=-1, keepdims=True), 1)
    return kept.cumsum(axis=-1) / total


def noise(rows: Rows, reference: Rows, bins: NDArray[np.int64]) -> Distances:
    """The mean of the squared distances of equal distributions (``psi`` as it is).

    Args:
        rows: [...] of the new rows.
        reference: [...] of the reference.
        bins: [columns] number of bins.
    """
    both = _both(rows, reference)
    psi = (bins - 1) * both
    return Distances(psi=psi, ks=np.sqrt(KS_NOISE * both * np.ones_like(psi)), js=_as_js(psi))


def chance(rows: Rows, reference: Rows, bins: NDArray[np.int64], alpha: float) -> Distances:
    """Bounds that equal distributions pass with probability ``alpha``, a column and statistic.

    PSI is a chi-squared of bins - 1 degrees over the rows; the squared Jensen-Shannon distance an
    eighth of it; the Kolmogorov-Smirnov bound is that of Dvoretzky, Kiefer, Wolfowitz (Massart).
    With few rows for each bin the logarithm has a longer tail: the bound is widened by it.
    """
    from scipy.stats import chi2

    both = _both(rows, reference)
    wide = 1 + bins * both
    psi = chi2.isf(alpha, np.maximum(bins - 1, 1)) * both * wide
    ks = np.sqrt(np.log(2 / alpha) / 2 * both) * np.ones_like(psi)
    return Distances(psi=psi, ks=np.minimum(ks, 1.0), js=np.minimum(_as_js(psi), 1.0))


def _both(rows: Rows, reference: Rows) -> Floats:
    """[..., 1]: 1/n + 1/m."""
    n, m = (np.maximum(np.asarray(one, dtype=np.float64), 1.0) for one in (rows, reference))
    return (1 / n + 1 / m)[..., None]


def _as_js(psi: Floats) -> Floats:
    """The Jensen-Shannon distance that goes with a small PSI."""
    return np.sqrt(psi / (8 * np.log(2)))
