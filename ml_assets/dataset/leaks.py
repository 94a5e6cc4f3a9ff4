"""Guards of a training set: a row that tells what it should not is an error, not a better model."""

from collections.abc import Mapping

import polars as pl

from ml_assets.errors import LeakError
from ml_assets.spec.pipeline import FeaturesSpec, SplitSpec
from ml_assets.spec.program import Split

ORDER: tuple[Split, ...] = ("train", "validation", "holdout")


def check_leaks(
    splits: Mapping[Split, pl.LazyFrame], features: FeaturesSpec, split: SplitSpec
) -> None:
    """No key in two splits; with a time split, every row of a split is older than the next's.

    Raises:
        LeakError: names the splits and what they share.
    """
    frames: dict[Split, pl.DataFrame] = {
        n: splits[n].select(*features.key, features.decision_at).collect() for n in ORDER
    }
    for position, name in enumerate(ORDER):
        for other in ORDER[position + 1 :]:
            _check_keys(name, other, frames, features)
            if split.kind == "time":
                _check_order(name, other, frames, features.decision_at)


def _check_keys(
    name: Split, other: Split, frames: Mapping[Split, pl.DataFrame], features: FeaturesSpec
) -> None:
    shared = frames[name].join(frames[other], on=list(features.key), how="semi")
    if len(shared):
        raise LeakError(
            f"{len(shared)} rows are in {name} and in {other}, {list(features.key)} ="
            f" {shared.select(features.key).row(0)} for one. Give each row one partition."
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
