"""The baselines of a language model: codes that count tokens, and gzip.

Each is fitted on the training split and reports how many nats each text of the holdout takes.
"""

import gzip
from dataclasses import dataclass
from math import log

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.spec.texts import TextBaseline, Tokens


@dataclass(frozen=True)
class Texts:
    """The texts of a split."""

    frame: pl.DataFrame
    """[rows]."""
    tokens: NDArray[np.uint16]
    """[n] see ``ShardFiles``."""
    starts: NDArray[np.int64]
    """[rows + 1]."""


def score_texts(
    spec: TextBaseline, train: Texts, holdout: Texts, tokens: Tokens
) -> NDArray[np.float64]:
    """[rows, 1] the nats of each text of the holdout."""
    if spec.kind == "gzip":
        sizes = [
            len(gzip.compress(text.encode(), mtime=0)) for text in holdout.frame[tokens.column]
        ]
        return np.array(sizes, np.float64)[:, None] * 8 * log(2)
    if spec.kind == "uniform":
        each = np.full(len(holdout.tokens) - 1, log(tokens.size))
    elif spec.kind == "unigram":
        each = -np.log(_shares(train, tokens.size)[holdout.tokens[1:]])
    else:
        each = _bigram(train, holdout, tokens.size)
    return np.add.reduceat(each, holdout.starts[:-1] - 1)[:, None]


def _shares(train: Texts, size: int) -> NDArray[np.float64]:
    """[size] how often each token comes, and once more: none is impossible."""
    counts = np.bincount(train.tokens[1:], minlength=size) + 1.0
    return counts / counts.sum()


def _bigram(train: Texts, holdout: Texts, size: int) -> NDArray[np.float64]:
    """[n - 1] nats of each token after the one before it.

    Witten and Bell (1991): a token that was followed by T different ones, N times in all, leaves
    T / (N + T) to what never followed it, shared as the tokens are on the whole.
    """
    seen, counts = np.unique(_pairs(train, size), return_counts=True)
    before = seen // size
    times = np.bincount(before, counts, minlength=size)
    kinds = np.bincount(before, minlength=size)
    asked = _pairs(holdout, size)
    place = np.minimum(np.searchsorted(seen, asked), len(seen) - 1)
    found = np.where(seen[place] == asked, counts[place], 0)
    first, second = asked // size, asked % size
    whole = np.maximum(times[first] + kinds[first], 1)
    unknown = np.where(times[first] > 0, kinds[first] / whole, 1.0)
    return -np.log(found / whole + unknown * _shares(train, size)[second])


def _pairs(texts: Texts, size: int) -> NDArray[np.int64]:
    tokens = texts.tokens.astype(np.int64)
    return tokens[:-1] * size + tokens[1:]
