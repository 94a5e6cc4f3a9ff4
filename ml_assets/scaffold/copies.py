"""Counts rows that are copies of others under another key, before training refuses them."""

from collections.abc import Sequence
from math import sqrt

import polars as pl

from ml_assets.spec.leaks import SharedRows

_FEWEST = 5
"""So many equal rows prove nothing, as for the guard of the training set."""
_CHANCE_ERRORS = 3.0
"""Standard errors that chance may be off by."""


def count_copies(frame: pl.DataFrame, features: Sequence[str], label: str) -> int:
    """How many labelled rows repeat the features and the label of a row before them.

    0 where they are few, or no more than chance explains, as if the columns were independent of
    each other: the guard ``no_shared_rows`` lets these pass.
    """
    rows = frame.filter(pl.col(label).is_not_null()).select(*features, label)
    repeated = rows.is_duplicated()
    copies = len(rows) - rows.n_unique() if len(rows) else 0
    if not features or copies <= _FEWEST:
        return 0
    others = pl.repeat(float(len(rows)), len(rows), eager=True)
    for column in rows.columns:
        share = (pl.len().over(column) - 1) / (len(rows) - 1)
        others = others * rows.select(share).to_series()
    chance = float(1 - (-others).exp().mean())  # pyright: ignore[reportOperatorIssue]
    chance += _CHANCE_ERRORS * sqrt(max(chance * (1 - chance), 0.0) / len(rows))
    beyond = float(repeated.mean() or 0.0) - chance  # pyright: ignore[reportArgumentType]
    return copies if beyond > SharedRows().at_most else 0
