"""Reads an append-only stream: its events are numbered without a gap, and each counts once.

It is a folder of JSON lines, one file per micro-batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from ml_assets.errors import SourceError

_NONE = -1


@dataclass(frozen=True)
class Batch:
    """Events that came together."""

    frame: pl.DataFrame
    """The rows, with the column that numbers them."""
    title: str
    """Where they are."""


def consume(batches: Sequence[Batch], offset: str, where: str) -> pl.DataFrame:
    """Every event once, in the order of the offsets, which are no part of the result.

    Args:
        batches: as they were delivered: in whatever order, some of them again.

    Raises:
        SourceError: an event has no offset, an offset is missing, or two events have the same one.
    """
    for batch in batches:
        _check_numbered(batch.frame[offset], offset, batch.title)
    ends = [(_bound(b, offset, "min"), _bound(b, offset, "max"), b) for b in batches]
    taken, next_one = list[pl.DataFrame](), 0
    for _, _, batch in sorted(ends, key=lambda one: one[:2]):
        new = _new_events(taken, next_one, batch, offset, where)
        taken.append(new)
        next_one += new.height
    return pl.concat(taken).drop(offset) if taken else pl.DataFrame()


def _new_events(
    taken: list[pl.DataFrame], next_one: int, batch: Batch, offset: str, where: str
) -> pl.DataFrame:
    """The events of a batch that are new; those taken hold the offsets 0 to ``next_one`` - 1."""
    frame = batch.frame.unique(maintain_order=True).sort(offset)
    _check_once(frame[offset], batch.title)
    again = frame.filter(pl.col(offset) < next_one)
    if again.height:
        _check_again(again, pl.concat(taken)[again[offset]], offset, f"{where}: {batch.title}")
    new = frame.filter(pl.col(offset) >= next_one)
    numbers = new[offset]
    expected = pl.int_range(next_one, next_one + new.height, eager=True)
    if not (numbers == expected).all():
        row = int((numbers != expected).arg_max() or 0)
        raise _missing(where, expected[row], numbers[row], batch.title)
    return new


def _check_again(again: pl.DataFrame, taken: pl.DataFrame, offset: str, where: str) -> None:
    """Events that were delivered again are what they were."""
    rows = zip(again.iter_rows(), taken.iter_rows(), strict=True)
    other = next((number for number, (one, two) in enumerate(rows) if one != two), None)
    if other is not None:
        raise SourceError(
            f"{where} brings offset {again[offset][other]} again with another content. An event is"
            " never changed: append one that corrects it."
        )


def _check_numbered(numbers: pl.Series, offset: str, title: str) -> None:
    if numbers.null_count() or (numbers.len() and _as_int(numbers.min()) < 0):
        raise SourceError(
            f"{title}: an event has no offset of 0 or more in {offset!r}. Every event is numbered"
            " by its stream."
        )


def _check_once(numbers: pl.Series, title: str) -> None:
    twice = numbers.filter(numbers.is_duplicated())
    if twice.len():
        raise SourceError(
            f"{title}: offset {twice[0]} is there twice with different content. An event is never"
            " changed: append one that corrects it."
        )


def _missing(where: str, first: int, found: int, title: str) -> SourceError:
    span = f"offset {first}" if found == first + 1 else f"offsets {first} to {found - 1}"
    return SourceError(
        f"{where}: {span} of the stream are missing before {title}. A batch was not delivered:"
        " deliver it, and look again."
    )


def _bound(batch: Batch, offset: str, which: str) -> int:
    return _as_int(getattr(batch.frame[offset], which)())


def _as_int(value: object) -> int:
    return value if isinstance(value, int) else _NONE
