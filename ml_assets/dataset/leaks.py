"""Guards of a training set: a row that tells what it should not is an error, not a better model."""

from collections.abc import Mapping

import polars as pl

from ml_assets.errors import LeakError
from ml_assets.spec.pipeline import FeaturesSpec, SplitSpec
from ml_assets.spec.program import Split

ORDER: tuple[Split, ...] = ("train", "validation", "holdout")


def check_leaks(
    splits: Mapping[Split, pl.LazyFrame],
    features: FeaturesSpec,
    split: SplitSpec,
    query: str | None = None,
) -> None:
    """No key in two splits; with a time split, every row of a split is older than the next's.

    Args:
        query: of a ranking the column of the query, which may not be in two splits either.

    Raises:
        LeakError: names the splits and what they share.
    """
    key = list(features.key)
    apart = [key, [query]] if query else [key]
    kept = dict.fromkeys([*key, *apart[-1], features.decision_at])
    frames: dict[Split, pl.DataFrame] = {n: splits[n].select(*kept).collect() for n in ORDER}
    for position, name in enumerate(ORDER):
        for other in ORDER[position + 1 :]:
            for columns in apart:
                _check_apart(name, other, frames, columns)
            if split.kind == "time":
                _check_order(name, other, frames, features.decision_at)


def _check_apart(
    name: Split, other: Split, frames: Mapping[Split, pl.DataFrame], columns: list[str]
) -> None:
    shared = frames[name].select(columns).unique().join(frames[other], on=columns, how="semi")
    if len(shared):
        raise LeakError(
            f"{len(shared)} values of {columns} are in {name} and in {other}, {shared.row(0)} for"
            " one. Give each one partition."
        )


def _check_order(
    name: Split, other: Split, frames: Mapping[Split, pl.DataFrame], column: str
) -> None:
    last, first = frames[name][column].max(), frames[other][column].min()
    if last is not None and first is not None and last >= first:  # pyright: ignore[reportOperatorIssue]  both are datetimes
        raise LeakError(
            f"{name} has a decision at {last}, {other} begins at {first}: a split by time must not"
            " overlap. Make the feature function return the rows of its window only."
        )
