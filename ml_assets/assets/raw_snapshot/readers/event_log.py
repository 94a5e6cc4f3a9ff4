"""An append-only stream: its events are numbered without a gap, and each counts once.

A reader asks for what comes after an offset until nothing does, as it would ask Kafka; here the
log is a folder of JSON lines, a file a micro-batch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from ml_assets.errors import SourceError

_NONE = -1
_POLLED = 16
"""Batches that one poll gives, and those that overlap them."""


@dataclass(frozen=True)
class Batch:
    """Events that came together."""

    frame: pl.DataFrame
    """The rows, with the column that numbers them."""
    title: str
    """Where they are."""


class EventLog(Protocol):
    """One partition of a stream."""

    def poll(self, after: int) -> Sequence[Batch]:
        """The next batches that hold events after that offset; none: that was the last one."""
        ...


class BatchLog:
    """The log of batches that were delivered as files, in whatever order, some of them again.

    Raises:
        SourceError: an event has no number.
    """

    def __init__(self, batches: Iterable[Batch], offset: str) -> None:
        batches = tuple(batches)
        for batch in batches:
            _check_numbered(batch.frame[offset], offset, batch.title)
        known = [(_bound(b, offset, "min"), _bound(b, offset, "max"), b) for b in batches]
        self._batches = sorted(known, key=lambda item: item[:2])

    def poll(self, after: int) -> Sequence[Batch]:
        polled: list[Batch] = []
        ahead = after
        for first, last, batch in self._batches:
            if last <= after:
                continue
            if len(polled) >= _POLLED and first > ahead:
                break  # else it brings events again: a later poll would never hold them to these
            polled.append(batch)
            ahead = max(ahead, last)
        return polled


def consume(log: EventLog, offset: str, where: str) -> pl.DataFrame:
    """Every event of a log once, in the order of the offsets, which are no part of the result.

    Raises:
        SourceError: an offset is missing, or two events have the same one.
    """
    taken: list[pl.DataFrame] = []
    next_one = 0
    while batches := log.poll(next_one - 1):
        for batch in batches:
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
