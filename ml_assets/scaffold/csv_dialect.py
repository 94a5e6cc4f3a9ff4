"""Detects how CSV files are written: separator, decimal sign, encoding, and the order in dates."""

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

import polars as pl

from ml_assets.errors import SpecError, quoted
from ml_assets.spec.sources import DateOrder, Encoding, Separator

_LINES = 200
"""Lines of a file, from its first, that have to agree on what separates their values."""
_WINDOWS = re.compile(rb"[\x80-\x9f]")
"""Letters and signs in cp1252, such as the euro sign; nothing at all in latin-1."""
_COMMA = r"^[+-]?\d*,\d+$"
_POINT = r"^[+-]?\d*\.\d+$"
_DAY = r"^(\d{1,2})([/.-])(\d{1,2})[/.-]\d{4}(?:\D|$)"
_MONTHS = 12


def find_encoding(contents: Sequence[tuple[Path, bytes]]) -> Encoding:
    """The one encoding of some files.

    Raises:
        SpecError: they are of several.
    """
    found: dict[Encoding, Path] = {}
    for file, content in contents:  # of ASCII alone is in each of them
        if not content.isascii():
            found.setdefault(_encoding(content), file)
    if found and {"latin-1", "cp1252"} >= {*found}:  # the second is the first with more letters
        return "cp1252" if "cp1252" in found else "latin-1"
    if len(found) > 1:
        told = ", ".join(f"{file.name} is {encoding.upper()}" for encoding, file in found.items())
        raise SpecError(
            f"The files are in different encodings: {told}. Write all of them in UTF-8."
        )
    return next(iter(found)) if found else "utf-8"


def _encoding(content: bytes) -> Encoding:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252" if _WINDOWS.search(content) and _decodes(content) else "latin-1"
    return "utf-8"


def _decodes(content: bytes) -> bool:
    try:
        content.decode("cp1252")
    except UnicodeDecodeError:
        return False
    return True


def find_separator(file: Path, text: str) -> Separator:
    """Return what separates the values of a file: its lines have as many as its header.

    Raises:
        SpecError: several signs may do so, or none does.
    """
    header = text.partition("\n")[0]
    there = [sign for sign in get_args(Separator) if sign in header]
    widths = {sign: _widths(text, sign) for sign in there}
    even = [sign for sign, found in widths.items() if len(found) == 1 and max(found) > 1]
    if len(even) == 1:
        return even[0]
    if len(even) > 1:
        signs = " and ".join(repr(sign) for sign in even)
        raise SpecError(
            f"{file}: {signs} may both separate its values, each line has equally many of them:"
            f" {quoted(header.strip()[:80])}. Write the file with one of them alone, or quote"
            " the values that hold the other."
        )
    return max(there, key=header.count, default=",")


def _widths(text: str, sign: str) -> Counter[int]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=sign)
    try:
        return Counter(len(record) for record in islice(reader, _LINES) if record)
    except csv.Error:
        return Counter()


def find_decimal(cells: pl.DataFrame, separator: Separator) -> Literal[".", ","]:
    """Return what stands before the fraction of the numbers in cells of text.

    Raises:
        SpecError: in one column it is a comma, in another one a point.
    """
    if separator == ",":
        return "."
    commas, points = _columns(cells, _COMMA), _columns(cells, _POINT)
    if commas and points:
        raise SpecError(
            f"Numbers have a comma in {commas[0]!r} and a point in {points[0]!r}: one decimal sign"
            " is expected in all columns. Write the numbers of one of them otherwise."
        )
    return "," if commas else "."


def find_dates(cells: pl.DataFrame, told: DateOrder | None) -> DateOrder:
    """Return what comes first in days such as 31.12.2023: with points the day, else what values
    show.

    Args:
        told: by a person.

    Raises:
        SpecError: every value can be read both ways, or columns are written in different ways.
    """
    shown: dict[DateOrder, str] = {}
    unsure = ""
    for column in cells:
        text = column.drop_nulls()
        text = text.filter(text.str.contains(_DAY))
        if 2 * len(text) <= len(column) - column.null_count():
            continue
        first, sign, second = (text.str.extract(_DAY, group) for group in (1, 2, 3))
        days, months = first.cast(pl.Int32), second.cast(pl.Int32)
        if (sign == ".").any() or (days > _MONTHS).any():
            shown.setdefault("dmy", f"{column.name!r} ({text[days.arg_max() or 0]})")
        elif (months > _MONTHS).any():
            shown.setdefault("mdy", f"{column.name!r} ({text[months.arg_max() or 0]})")
        else:
            unsure = unsure or f"{column.name!r} ({text[(days != months).arg_max() or 0]} for one)"
    if told or not (shown or unsure):
        return told or "ymd"
    if len(shown) > 1:
        raise SpecError(
            f"The day comes first in {shown['dmy']}, the month in {shown['mdy']}. Write the days of"
            " both columns in one way; 2023-12-31 is understood everywhere."
        )
    if not shown:
        raise SpecError(
            f"Does the day or the month come first in {unsure}? Each of its values can be read in"
            " both ways. Say it: --dates dmy (day first) or --dates mdy (month first)."
        )
    return next(iter(shown))


def _columns(cells: pl.DataFrame, fraction: str) -> list[str]:
    """The columns that have fractions written so, and whole numbers beside them at most."""
    return [
        column.name
        for column in cells
        if (told := column.drop_nulls().str.strip_chars()).str.contains(fraction).sum()
        > len(told) / 2
        or (
            told.str.contains(fraction).any()
            and told.str.contains(rf"{fraction}|^[+-]?\d+$").mean() == 1
        )
    ]
