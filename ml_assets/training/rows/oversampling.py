"""Decides which rows an epoch draws: pure functions of (seed, epoch, place).

An epoch draws every row once, in the order of ``store.row_order``, and with oversampling the rows
of a rare class again: draw ``units + n`` is the n-th further draw of such a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ml_assets.spec.training_program import ShardSchema
from ml_assets.spec.training_program.events import DrawnRows
from ml_assets.training.rows.arrays import SplitArrays
from ml_assets.training.stop import BadData


@dataclass(frozen=True)
class OversampleIndex:
    """The rows of one rare class, and how many further draws an epoch makes of them in all.

    Each is drawn equally often, or once more: who comes once more goes round from epoch to epoch.
    """

    label: int
    """Place of the class; binary: 1 is the positive."""
    rows: NDArray[np.int64]
    draws: int

    @property
    def lift(self) -> float:
        """The draws that an epoch makes of such a row, on average."""
        return 1 + self.draws / len(self.rows)

    def drawn(self, places: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """The rows of the further draws with these numbers."""
        more = self.draws % len(self.rows)
        return self.rows[(places + epoch * more) % len(self.rows)]

    def count(self, epoch: int) -> DrawnRows:
        """Count all further draws of an epoch; none of them is laid out."""
        each, more = divmod(self.draws, len(self.rows))
        often = DrawnRows.of(*(each * total for total in count_rows(self.rows).sums))
        return often.plus(count_rows(self.drawn(np.arange(more), epoch)))


def oversample_index(
    rows: SplitArrays, schema: ShardSchema, share: float | None
) -> tuple[OversampleIndex, ...]:
    """The rows to draw again, so that each class makes at least ``share`` of an epoch; None: none.

    Raises:
        BadData: a class has no row to draw.
    """
    if share is None:
        return ()
    names = schema.classes or ("false", "true")
    counts = np.zeros(len(names), np.int64)
    for labels in rows.labels():
        counts += np.bincount(labels, minlength=len(names))
    missing = [name for name, count in zip(names, counts, strict=True) if not count]
    if missing:
        raise BadData(
            f"training.oversample is {share:g}, but the training split has no row of the class"
            f" {missing}: there is nothing to draw. Take a longer training split, or remove it."
        )
    targets = _targets(counts, share)
    rare = np.flatnonzero(targets > counts)
    places: dict[int, list[NDArray[np.int64]]] = {int(number): [] for number in rare}
    start = 0
    for labels in rows.labels():
        for number, found in places.items():
            found.append(start + np.flatnonzero(labels == number))
        start += len(labels)
    return tuple(
        OversampleIndex(number, np.concatenate(found), int(targets[number] - counts[number]))
        for number, found in places.items()
    )


def drawn_rows(
    draws: NDArray[np.int64], units: int, oversampled: Sequence[OversampleIndex], epoch: int
) -> NDArray[np.int64]:
    """The rows behind an epoch's draws: the first ``units`` are the rows themselves."""
    if not oversampled:
        return draws
    rows, first = draws.copy(), units
    for more in oversampled:
        mine = (draws >= first) & (draws < first + more.draws)
        rows[mine] = more.drawn(draws[mine] - first, epoch)
        first += more.draws
    return rows


def count_rows(numbers: NDArray[np.int64]) -> DrawnRows:
    """Count rows by their numbers [n]."""
    whole = numbers.astype(np.uint64)  # its sums wrap at 2**64, which the modulus divides
    return DrawnRows.of(len(whole), int(whole.sum()), int((whole * whole).sum()))


def rows_of_epoch(units: int, oversampled: Sequence[OversampleIndex], epoch: int) -> DrawnRows:
    """The rows that an epoch is to draw: each once, and those of rare classes again."""
    drawn = DrawnRows.all_of(units)
    for more in oversampled:
        drawn = drawn.plus(more.count(epoch))
    return drawn


def _targets(counts: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """[classes] draws of an epoch: those of a common class are its rows."""
    rare = np.zeros(len(counts), bool)
    while True:
        whole = counts[~rare].sum() / (1 - share * rare.sum())
        below = ~rare & (counts < share * whole * (1 - 1e-9))
        if not below.any():
            return np.where(rare, np.ceil(share * whole), counts).astype(np.int64)
        rare |= below
