"""Reads JSON lines: one object a line. A missing key is a missing value.

The events of a stream are numbered without a gap, and each counts once.
"""

import io
import itertools
import json
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import polars as pl

from ml_assets.assets.raw_snapshot.python_values import JSON_VALUES
from ml_assets.assets.raw_snapshot.readers.places import MOST_BYTES
from ml_assets.assets.raw_snapshot.schema import TYPES, Columns, check_names, type_values
from ml_assets.errors import SourceError, quoted
from ml_assets.spec.documents import HALF_A_SIGN, half_a_sign

_AT_ONCE = 20_000
"""Lines that are Python objects at the same time; the rest are columns already."""
_CELL = 8
"""Bytes of a value in memory, about."""


def parse_lines(content: bytes, declared: Columns, where: str) -> pl.DataFrame:
    """Parse and type JSON lines. Blank lines are skipped.

    Raises:
        SourceError: a line is not a JSON object, or does not hold what is declared; names the line.
    """
    return parse_batches([(content, where)], declared, where)[0]


def parse_batches(
    batches: Iterable[tuple[bytes, str]], declared: Columns, where: str
) -> list[pl.DataFrame]:
    """Parse and type the files of one table: a key need not be in each of them.

    Args:
        batches: the content of each, and what messages about it begin with.

    Raises:
        SourceError: see ``parse_lines``.
    """
    keys: dict[str, None] = {}
    frames = [_parse_batch(content, declared, title, keys) for content, title in batches]
    if any(frame.height for frame in frames):
        check_names(list(keys), declared, where)
    return frames


def _parse_batch(
    content: bytes, declared: Columns, where: str, keys: dict[str, None]
) -> pl.DataFrame:
    """The rows of a batch of lines; ``keys`` collects every key that is met."""
    numbers = array("q")
    columns: dict[str, list[Any]] = {name: [] for name in declared}
    for lines in _some_lines(content):
        events = _parse_all(list(lines.values())) or [
            _parse_line(line, f"{where}, line {number}") for number, line in lines.items()
        ]
        keys.update(_keys(events, list(lines), declared, where))
        numbers.extend(lines)
        _check_size(len(numbers) * len(declared), where)
        for name, values in columns.items():
            values += [event.get(name) for event in events]
    if not numbers:
        return pl.DataFrame(schema={name: TYPES[dtype] for name, dtype in declared.items()})
    typed = type_values(columns, declared, JSON_VALUES)
    return typed.required(where, lambda row: f"line {numbers[row]}")


def _some_lines(content: bytes) -> Iterator[dict[int, bytes]]:
    """Line number -> line, for a few lines that are not blank at a time."""
    stripped = ((n, line.strip()) for n, line in enumerate(io.BytesIO(content), start=1))
    there = ((number, line) for number, line in stripped if line)
    while some := dict(itertools.islice(there, _AT_ONCE)):
        yield some


def _check_size(cells: int, where: str) -> None:
    """A line may leave out every key: its row takes more than it does."""
    if cells * _CELL > MOST_BYTES:
        raise SourceError(
            f"{where} has more than {MOST_BYTES // _CELL:,} values (absent keys count as well),"
            " too many to read at once. Write smaller partitions."
        )


def _parse_all(lines: Sequence[bytes]) -> list[dict[str, Any]] | None:
    """All lines in one call, three times faster; None where one of them has to be looked at.

    A line within braces cannot lend a part to the next one but inside a list, which is no value.
    """
    if not all(line[:1] == b"{" and line[-1:] == b"}" for line in lines):
        return None
    try:
        text = b",".join(lines).decode()
        events = _DECODER.decode(f"[{text}]")
        if half_a_sign(text, events):
            return None
    except (ValueError, RecursionError):
        return None
    whole = len(events) == len(lines) and all(type(event) is dict for event in events)
    # no more keys were written than are there: none was written twice
    return events if whole and len(_KEY.findall(text)) == sum(map(len, events)) else None


def _parse_line(line: bytes, where: str) -> dict[str, Any]:
    try:
        text = line.decode()
        event = _CAREFUL.decode(text)
        if half_a_sign(text, event):
            raise ValueError(HALF_A_SIGN)
    except (ValueError, RecursionError) as error:  # JSON's and Unicode's are ValueErrors
        shown = line[:60].decode("utf-8", "replace")
        raise SourceError(
            f"{where} is not valid JSON: {quoted(f'{error}, {shown!r}')}. One whole JSON object is"
            " expected on each line; was the file cut off?"
        ) from error
    if not isinstance(event, dict):
        raise SourceError(
            f"{where} holds a {type(event).__name__}, not an object. One JSON object is expected on"
            " each line."
        )
    return event


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON; write null for no value")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key in found if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"the key {twice[:60]!r} is there twice")
    return found


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_CAREFUL = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_once)
_KEY = re.compile(r'"[ \t]*:')
"""The end of a key; now and then also of text in a value, which is then looked at line by line."""


def _keys(
    events: Sequence[dict[str, Any]], numbers: Sequence[int], declared: Columns, where: str
) -> dict[str, None]:
    """The keys of the lines, in their order; each is a declared one."""
    known = declared.keys()
    for number, event in zip(numbers, events, strict=True):
        if not event.keys() <= known:
            # Named with the line: the others may well be right.
            check_names(list(event), declared, f"{where}, line {number}")
    return {key: None for event in events for key in event}


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
    taken = _Taken()
    for _, _, batch in sorted(ends, key=lambda one: one[:2]):
        taken.add(_new_events(taken, batch, offset, where))
    return pl.concat(taken.frames).drop(offset) if taken.frames else pl.DataFrame()


@dataclass
class _Taken:
    """The events with the offsets 0 to ``next_one`` - 1, in order."""

    frames: list[pl.DataFrame] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    """The offset that each frame begins with."""
    next_one: int = 0

    def add(self, new: pl.DataFrame) -> None:
        if new.height:
            self.frames.append(new)
            self.begins.append(self.next_one)
            self.next_one += new.height

    def at(self, offsets: pl.Series) -> pl.DataFrame:
        """The events of some offsets, which are sorted; frames without one are not looked at."""
        first = bisect_right(self.begins, offsets[0]) - 1
        last = bisect_right(self.begins, offsets[-1])
        return pl.concat(self.frames[first:last])[offsets - self.begins[first]]


def _new_events(taken: _Taken, batch: Batch, offset: str, where: str) -> pl.DataFrame:
    next_one = taken.next_one
    frame = batch.frame.unique(maintain_order=True).sort(offset)
    _check_once(frame[offset], batch.title)
    again = frame.filter(pl.col(offset) < next_one)
    if again.height:
        _check_again(again, taken.at(again[offset]), offset, f"{where}: {batch.title}")
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
            f"{where} repeats offset {again[offset][other]} with other content. An event is"
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
