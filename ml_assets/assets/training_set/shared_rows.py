"""Equal rows in two splits: a model that learned one by heart is praised for the other."""

import math
from collections.abc import Mapping

import polars as pl

from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.leaks import LeakFinding, SharedRows
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.program import Split

PAIRS: tuple[tuple[Split, Split], ...] = (
    ("train", "validation"),
    ("train", "holdout"),
    ("validation", "holdout"),
)
ERRORS = 3.0
"""Standard errors that chance may be off by."""
FEWEST = 5
"""So many equal rows prove nothing: Fisher's irises have two."""


def find_shared_rows(
    rows: Mapping[Split, pl.DataFrame], features: FeaturesSpec, label: LabelSpec, guard: SharedRows
) -> LeakFinding:
    """Rows whose features and label are those of a row of an earlier split, under another key.

    Where few columns have few values, rows are equal by chance: what chance explains, as if the
    columns were independent of each other, is not counted.
    """
    columns = [*features.numeric, *features.categorical, label.column]
    hashes = {name: frame.select(columns).hash_rows() for name, frame in rows.items()}
    worst, where, named = 0.0, "", ()
    for early, late in PAIRS:
        equal = hashes[late].is_in(hashes[early].unique().implode())
        count, total = int(equal.sum()), len(rows[late])
        share = count / total
        if count <= FEWEST or share <= max(worst, guard.at_most):
            continue  # chance can only lessen it
        share -= _by_chance(rows[early], rows[late], columns)
        if share > worst:
            keys = rows[late].filter(equal).select(features.key).head(10)
            worst, where = share, f"{count:,} of the {total:,} rows of {late} are in {early}"
            named = tuple(str(key) for key in keys.rows())
    passed = worst <= guard.at_most
    said = f"{worst:.2%} of the rows of a split are in an earlier one, beyond chance"
    if not passed:
        said = (
            f"{where} with the same features and label, under other keys: {worst:.1%} more than"
            f" chance would make equal, and {guard.at_most:.1%} are allowed. Take copies out before"
            " the split, or keep them together (split.groups); where the columns are few and"
            " depend on each other, set leaks.shared_rows.at_most"
        )
    return LeakFinding(
        name="no_shared_rows",
        passed=passed,
        value=max(0.0, worst),
        bound=guard.at_most,
        reason=said,
        named=() if passed else named,
    )


def _by_chance(early: pl.DataFrame, late: pl.DataFrame, columns: list[str]) -> float:
    """The largest share of ``late`` with an equal row in ``early``, were the columns independent.

    A row has none with probability exp(-n prod_j p_j), p_j the frequency of its value in ``early``.
    """
    expected = pl.repeat(float(len(early)), len(late), eager=True)
    for column in columns:
        counts = early.group_by(column).agg((pl.len() / len(early)).alias("__p"))
        found = late.select(column).join(
            counts, on=column, how="left", maintain_order="left", nulls_equal=True
        )
        expected = expected * found["__p"].fill_null(0.0)
    chance = float(1 - (-expected).exp().mean())  # pyright: ignore[reportOperatorIssue]  a float column's mean is a float
    fewest = min(len(early), len(late))
    return chance + ERRORS * math.sqrt(chance * (1 - chance) / fewest)
