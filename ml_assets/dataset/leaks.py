"""Guards of a training set: a row that tells what it should not is an error, not a better model."""

from collections.abc import Mapping, Sequence

import polars as pl

from ml_assets.errors import LeakError
from ml_assets.spec.pipeline import FeaturesSpec, LabelSpec, SplitSpec
from ml_assets.spec.program import Split

ORDER: tuple[Split, ...] = ("train", "validation", "holdout")


def check_leaks(
    splits: Mapping[Split, pl.LazyFrame],
    features: FeaturesSpec,
    label: LabelSpec,
    split: SplitSpec,
) -> None:
    """No key (and no query) in two splits; with a time split, each is older than the next.

    Raises:
        LeakError: names the splits and what they share.
    """
    query = [label.query] if label.query else []
    columns = dict.fromkeys([*features.key, features.decision_at, *query])
    frames: dict[Split, pl.DataFrame] = {n: splits[n].select(*columns).collect() for n in ORDER}
    for position, name in enumerate(ORDER):
        for other in ORDER[position + 1 :]:
            _check_shared(name, other, frames, features.key)
            if query:
                _check_shared(name, other, frames, query)
            if split.kind == "time":
                _check_order(name, other, frames, features.decision_at)


def _check_shared(
    name: Split, other: Split, frames: Mapping[Split, pl.DataFrame], columns: Sequence[str]
) -> None:
    shared = frames[name].join(frames[other], on=list(columns), how="semi")
    if len(shared):
        raise LeakError(
            f"{len(shared)} rows of {name} are in {other} too, {list(columns)} ="
            f" {shared.select(columns).row(0)} for one. Give each one partition."
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
