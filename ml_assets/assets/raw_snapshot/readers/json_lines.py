"""Reads JSON lines: one object a line. A missing key is a missing value."""

import io
import itertools
import json
import re
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import polars as pl

from ml_assets.assets.raw_snapshot.readers.places import MOST_BYTES
from ml_assets.assets.raw_snapshot.schema import (
    JSON_VALUES,
    TYPES,
    Columns,
    check_names,
    type_values,
)
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
    numbers = array("q")
    columns: dict[str, list[Any]] = {name: [] for name in declared}
    keys: dict[str, None] = {}
    for lines in _some_lines(content):
        events = _parse_all(list(lines.values())) or [
            _parse_line(line, f"{where}, line {number}") for number, line in lines.items()
        ]
        keys |= _keys(events, list(lines), declared, where)
        numbers.extend(lines)
        _check_size(len(numbers) * len(declared), where)
        for name, values in columns.items():
            values += [event.get(name) for event in events]
    if not numbers:
        return pl.DataFrame(schema={name: TYPES[dtype] for name, dtype in declared.items()})
    check_names(list(keys), declared, where)
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
            f"{where} has more than {MOST_BYTES // _CELL:,} values, those that are left out"
            " included: they are read at once. Write smaller partitions."
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
