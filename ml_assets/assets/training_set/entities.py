"""Splits by entity: all rows of a plane, a patient or a customer are on one side."""

from collections.abc import Mapping, Sequence
from typing import assert_never

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.assets.training_set.read_split import Part, SplitRows
from ml_assets.assets.training_set.split import unit
from ml_assets.errors import WindowError, counted
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.split import StratifiedGroupSplit, TimeGroupSplit
from ml_assets.spec.training_program import SPLITS, Split

BANDS = 5
"""Bands of a numeric label, each as common as the others, that every split gets its share of."""
_GROUP = "__group"


def keep_entities_apart(
    splits: Mapping[Split, SplitRows], spec: TimeGroupSplit
) -> dict[Split, SplitRows]:
    """The rows of each split without those of entities that another split keeps.

    Nobody knows of a row with a null in its groups whom it is about: it stays.

    Raises:
        WindowError: a split has no row left.
    """
    groups = list(spec.groups)
    order = SPLITS if spec.keep == "first" else SPLITS[::-1]
    entities = {name: _distinct(splits[name], groups) for name in order}
    kept: dict[Split, SplitRows] = {}
    for place, name in enumerate(order):
        others = [entities[other] for other in order[:place]]
        kept[name] = SplitRows(tuple(_without(part, others, groups) for part in splits[name].parts))
        if not len(kept[name]) and len(splits[name]):
            raise WindowError(
                f"No row is left in {name}: each of its {counted(len(splits[name]), 'row')} is"
                f" about one of {groups} that {' or '.join(order[:place])} keeps. Entities that"
                " are there all the time cannot be kept apart by time; use split.kind"
                f" 'stratified_group', or keep: {'last' if spec.keep == 'first' else 'first'}."
            )
    return {name: kept[name] for name in SPLITS}


def _distinct(rows: SplitRows, groups: Sequence[str]) -> pl.DataFrame:
    """Each entity of a split, once."""
    return pl.concat(frame.unique() for frame in rows.each(groups)).unique()


def _without(part: Part, others: Sequence[pl.DataFrame], groups: Sequence[str]) -> Part:
    """The rows that are about none of the entities of other splits."""
    rows = part.rows
    for other in others:
        rows = rows.join(other.lazy(), on=groups, how="anti", maintain_order="left")
    return Part(rows, part.source if not others else None)


def stratified_group_split(
    frame: pl.DataFrame,
    key: Sequence[str],
    label: LabelSpec,
    spec: StratifiedGroupSplit,
    seed: int,
) -> pl.Series:
    """The split of each row: whole entities, the largest first, each to where it is lacked most.

    Greedy, as in Sechidis et al., "On the Stratification of Multi-label Data" (2011), with whole
    entities in the place of rows. Equal ones take the order of a hash of seed and entity, so that
    the same rows are parted the same way, in whatever order they come.

    Args:
        key: of a row whose entity is null: it is an entity of its own.
    """
    shares: dict[Split, float] = {
        "train": 1 - spec.validation - spec.holdout,
        "validation": spec.validation,
        "holdout": spec.holdout,
    }
    entity, stratum = _entities(frame, key, spec.groups), _strata(frame[label.column], label)
    counts = (
        pl.DataFrame({_GROUP: entity, "stratum": stratum})
        .group_by(_GROUP, "stratum")
        .len()
        .pivot("stratum", index=_GROUP, values="len", sort_columns=True)
        .fill_null(0)
    )
    numbers = counts.drop(_GROUP).to_numpy().astype(np.float64)
    hashed = np.array([unit(f"{seed}\x1f{name}") for name in counts[_GROUP].to_list()])
    order = np.lexsort((hashed, -numbers.sum(axis=1)))
    placed = _place(numbers[order], np.array(list(shares.values())))
    names = np.empty(len(order), dtype=object)
    names[order] = [list(shares)[side] for side in placed]
    parted = pl.DataFrame({_GROUP: counts[_GROUP], "split": names.tolist()})
    return entity.to_frame(_GROUP).join(parted, on=_GROUP, how="left", maintain_order="left")[
        "split"
    ]


def _place(counts: NDArray[np.float64], shares: NDArray[np.float64]) -> list[int]:
    """[entities] the side of each, from what it has of each stratum, [entities, strata]."""
    totals = counts.sum(axis=0)
    wanted = shares[:, None] * totals[None, :]
    have = np.zeros_like(wanted)
    placed: list[int] = []
    for entity in counts:
        lack = (wanted - have) / np.maximum(wanted, 1e-9)
        side = int(np.argmax(lack @ (entity / totals)))
        have[side] += entity
        placed.append(side)
    return placed


def _entities(frame: pl.DataFrame, key: Sequence[str], groups: Sequence[str]) -> pl.Series:
    """A text for each row that is the same for rows of one entity, and for those only."""
    known = pl.struct(pl.col(*groups)).struct.json_encode()
    alone = pl.lit("row ") + pl.struct(pl.col(*key)).struct.json_encode()
    nobody = pl.any_horizontal(pl.col(*groups).is_null())
    return frame.select(pl.when(nobody).then(alone).otherwise(known).alias(_GROUP))[_GROUP]


def _strata(values: pl.Series, label: LabelSpec) -> pl.Series:
    """What each row's label is, for the purpose of sharing it out; unlabelled rows are one more."""
    match label.task:
        case "binary" | "multiclass" | "ranking":
            named = values.cast(pl.String)
        case "regression" | "language_model":
            place = (values.rank("min") - 1) * BANDS // max(1, values.count())
            named = place.cast(pl.String)
        case _:
            assert_never(label.task)
    return named.fill_null("none").alias("stratum")
