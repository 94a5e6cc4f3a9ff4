"""The data card: the content of a table, from its statistics, as pictures and as one HTML page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import floor, inf, isfinite, log10, sqrt

from ml_assets.reports.drawing import Axis, Series, line_chart, number
from ml_assets.reports.page import page
from ml_assets.reports.picture import Picture, Table
from ml_assets.reports.row_charts import Strip, Whisker, estimate_chart, strip_chart
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.store.table_statistics import GROUPS as COUNTED
from ml_assets.store.table_statistics import Column, Grouped, Labels, Numbers, TableStatistics

STRIPS = 16
"""Columns in one picture of distributions."""
BARS = 24
GROUPS = 24
"""Groups of one column that are drawn, those with the most rows."""
CLASSES = 4
_TAIL = 0.01
_FAR = 4.0
"""A range is cut to its middle where it is so many times as wide."""
_Z95 = 1.959964
_MISSING = "(missing)"
"""What the survey calls a group without a value."""
_HOUR = 3.6e9
_FINEST = 12
"""Most decimals of a quantile."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Card:
    """One table, or one partition of it."""

    pipeline: str
    table: str
    span: str
    """Which partitions, in words."""
    statistics: TableStatistics
    label: LabelSpec | None = None
    """The label of a table that has labels."""
    time_columns: Sequence[str] = ()
    """Groupings that are moments in time, drawn as a line."""


@dataclass(frozen=True)
class ColumnRow:
    """A column in the table of all: quantiles of numbers, the most frequent values of text."""

    name: str
    type: str
    missing: str
    ends: Sequence[str] = ()
    """Lowest, 5 %, median, 95 %, highest."""
    values: str = ""


def card_pictures(card: Card) -> list[Picture | Table]:
    """The pictures of a card on an asset's page: first columns, missing values, labels."""
    return [facts_table(card), *distributions(card)[:1], *label_pictures(card)]


def card_page(card: Card, ways: Mapping[str, str]) -> str:
    """The whole card as one HTML page.

    Args:
        ways: what a link says -> its address.
    """
    return page(
        "data_card.html",
        name=f"{card.pipeline}: {card.table}",
        span=card.span,
        ways=ways,
        facts=facts_table(card),
        distributions=distributions(card),
        columns=[_described(one, card.statistics) for one in card.statistics.columns],
        labelled=card.label is not None,
        labels=label_pictures(card),
        sample=sample_table(card.statistics),
    )


def facts_table(card: Card) -> Table:
    """Return what one looks at first."""
    seen = card.statistics
    holes = [column for column in seen.columns if column.missing]
    rows = [
        ("rows", f"{seen.rows:,}"),
        ("columns", f"{len(seen.columns):,}"),
        ("columns with missing values", f"{len(holes):,}{_worst(holes, seen.rows)}"),
        ("rows with a duplicate key", f"{seen.repeated_keys:,}"),
        ("duplicate rows", f"{seen.repeated_rows:,}"),
    ]
    if card.label and seen.labels:
        rows.append(("rows with a label", f"{seen.labels.labelled:,}"))
        named = zip(_rate_names(card.label)[:CLASSES], seen.labels.rates, strict=False)
        rows += [(name.lower(), number(rate)) for name, rate in named]
    return Table("Data card", card.span, ("", ""), rows)


def distributions(card: Card) -> list[Picture]:
    """Return how the values of each column lie, so many columns a picture."""
    seen = [column for column in card.statistics.columns if column.kind != "other"]
    found: list[Picture] = []
    for start in range(0, len(seen), STRIPS):
        part = seen[start : start + STRIPS]
        left = f", columns {start + 1} to {start + len(part)}" if len(seen) > STRIPS else ""
        chart = strip_chart("Distributions", [_strip(column) for column in part])
        found.append(Picture(f"Distributions{left}", f"{card.table}, {card.span}", chart))
    return found


def label_pictures(card: Card) -> list[Picture]:
    """The labels by group and by period."""
    if card.label is None:
        return []
    found: list[Picture] = []
    for grouped in card.statistics.grouped:
        if not any(group.labelled for group in grouped.groups):
            continue
        for place, name in enumerate(_rate_names(card.label)[:CLASSES]):
            if grouped.by in card.time_columns:
                found += _over_time(grouped, place, name)
            else:
                found.append(_by_group(card, grouped, place, name))
    return found


def sample_table(seen: TableStatistics) -> Table:
    """A few rows, drawn by the hash of their key."""
    rows = [row.cells for row in seen.sample]
    return Table(
        "Sampled rows",
        "Rows are chosen by the hash of their key, so the sample stays the same.",
        seen.sampled_columns,
        rows,
    )


def _strip(column: Column) -> Strip:
    if column.numbers:
        low, high = _range(column.numbers)
        shown = " to ".join(
            _value(column, end) for end in (column.numbers.low, column.numbers.high)
        )
        return Strip(column.name, _heights(column.numbers, low, high), shown)
    if column.texts and column.texts.values:
        value, count = column.texts.values[0]
        share = f"{count / column.texts.rows:.0%}"
        heights = [float(count) for _, count in column.texts.values[:BARS]]
        shown = f"{_different(column)} values, {_short(value)} {share}"
        return Strip(column.name, heights, shown, ordered=False)
    if column.texts and column.texts.different:
        return Strip(column.name, (), f"{_different(column)} values, none of them often")
    return Strip(column.name, (), "nothing but missing values")


def _range(numbers: Numbers) -> tuple[float, float]:
    """What is drawn: everything, or the middle where a few values lie far out.

    A middle within one bin is one value: there is no more to see of it.
    """
    low, high = numbers.quantile(_TAIL), numbers.quantile(1 - _TAIL)
    seen = high - low > 2.0**numbers.histogram.level
    if seen and (numbers.high - numbers.low) > _FAR * (high - low):
        return low, high
    return numbers.low, numbers.high


def _heights(numbers: Numbers, low: float, high: float) -> list[float]:
    heights = [0.0] * BARS
    wide = (high - low) / BARS
    for start, end, count in numbers.histogram.edges():
        middle = max(min((start + end) / 2, numbers.high), numbers.low)
        place = floor((middle - low) / wide) if wide > 0 else 0
        heights[min(max(place, 0), BARS - 1)] += count
    return heights


def _described(column: Column, seen: TableStatistics) -> ColumnRow:
    missing = f"{column.missing:,} ({column.missing / seen.rows:.1%})" if column.missing else "–"
    if column.infinite:
        missing += f", {column.infinite:,} infinite"
    if column.numbers is not None:
        low, high = (_value(column, end) for end in (column.numbers.low, column.numbers.high))
        between = [_quantile(column, column.numbers, share) for share in (0.05, 0.5, 0.95)]
        return ColumnRow(column.name, column.type, missing, [low, *between, high])
    most = ", ".join(_most_frequent(column, seen))
    values = f"{_different(column)} values{f': {most}' if most else ''}" if column.texts else ""
    return ColumnRow(column.name, column.type, missing, values=values)


def _most_frequent(column: Column, seen: TableStatistics) -> list[str]:
    """The most frequent values and their rows; beyond what is counted apart, at least so many."""
    if column.texts is None:
        return []
    groups = next((one.groups for one in seen.grouped if one.by == column.name), ())
    rows = {group.value: group.rows for group in groups}
    least = column.texts.short > 0 and not 0 < len(groups) < COUNTED
    return [
        f"{_short(value)} ({'≥ ' if least else ''}{max(count, rows.get(value, 0)):,})"
        for value, count in column.texts.values[:5]
    ]


def _quantile(column: Column, numbers: Numbers, share: float) -> str:
    """A quantile as exact as the histogram is of which it is: no minute where bins are days."""
    found = numbers.quantile(share)
    if column.kind == "time":
        return _value(column, found, coarse=2.0**numbers.histogram.level >= _HOUR)
    return _value(column, _roundest(numbers, found))


def _roundest(numbers: Numbers, found: float) -> float:
    """The roundest number of the bin that a value lies in, to a hundredth of the range or finer:
    11 of a bin that holds 11 alone."""
    wide = (numbers.high - numbers.low) / 100
    if not isfinite(wide) or wide <= 0:
        return found
    edges = numbers.histogram.edges()
    low, high = next((low, high) for low, high, _ in edges if low <= found <= high)
    first = -floor(log10(wide))
    near = (round(found, places) for places in range(first, first + _FINEST))
    return next((one for one in near if low <= one <= high), found)


def _by_group(card: Card, grouped: Grouped, place: int, name: str) -> Picture:
    told = [group for group in grouped.groups if group.labelled]
    shown = sorted(told, key=lambda one: (-one.rows, one.value))[:GROUPS]
    counted = card.label is not None and card.label.task in ("binary", "multiclass")
    rows = [
        Whisker(
            f"{group.value} ({group.labelled:,})",
            group.rates[place],
            *(_wilson(group.rates[place], group.labelled) if counted else (None, None)),
        )
        for group in _in_order(shown)
    ]
    chart = estimate_chart(f"{name} by {grouped.by}", rows, Axis(name))
    of = _groups_of(card, grouped, len(told))
    left = f" The {GROUPS} largest of {of}." if len(told) > GROUPS else ""
    words = f"In brackets: rows with a label.{' Whiskers: 95% intervals.' if counted else ''}{left}"
    return Picture(f"{name} by {grouped.by}", words, chart)


def _in_order(groups: Sequence[Labels]) -> list[Labels]:
    """By value: numbers as numbers where all are, 2 before 10."""
    numbers: dict[str, float] = {}
    for group in groups:
        try:
            numbers[group.value] = float(group.value)
        except ValueError:
            if group.value != _MISSING:
                return sorted(groups, key=lambda one: one.value)
    return sorted(groups, key=lambda one: (numbers.get(one.value, inf), one.value))


def _groups_of(card: Card, grouped: Grouped, told: int) -> str:
    """How many groups there are: of more than are counted apart, at least as many as values."""
    if len(grouped.groups) < COUNTED:
        return f"{told:,}"
    column = next((one for one in card.statistics.columns if one.name == grouped.by), None)
    if column is None or column.texts is None:
        return f"at least {told:,}"
    return _different(column, at_least=told)


def _over_time(grouped: Grouped, place: int, name: str) -> list[Picture]:
    told = [group for group in grouped.groups if group.labelled]
    if len(told) < 2:
        return []
    names = [group.value for group in told]
    points = [(float(i), group.rates[place]) for i, group in enumerate(told)]
    axis = Axis("", 0.0, float(len(told) - 1), names)
    chart = line_chart(
        f"{name} by {grouped.by}", [Series(name, points)], axis, Axis(name), wide=True
    )
    return [Picture(f"{name} by {grouped.by}", "Of the rows that have a label.", chart)]


def _rate_names(label: LabelSpec) -> list[str]:
    match label.task:
        case "binary":
            return ["Label rate"]
        case "multiclass":
            return [f"Share of {name}" for name in label.classes]
        case _:
            return ["Mean label"]


def _wilson(rate: float, rows: int) -> tuple[float, float]:
    """The 95% interval of a share (Wilson, 1927)."""
    square = _Z95**2 / rows
    middle = (rate + square / 2) / (1 + square)
    half = _Z95 / (1 + square) * sqrt(rate * (1 - rate) / rows + square / (4 * rows))
    return max(0.0, middle - half), min(1.0, middle + half)


def _worst(holes: Sequence[Column], rows: int) -> str:
    if not holes:
        return ""
    worst = max(holes, key=lambda column: column.missing)
    return f", most in {_short(worst.name)} ({worst.missing / rows:.1%})"


def _different(column: Column, at_least: int = 0) -> str:
    """How many values there are; beyond what is counted apart, at least how many."""
    if column.texts is None:
        return ""
    seen = column.texts
    exact = seen.short == 0 or seen.different == seen.rows
    return f"{'' if exact else 'at least '}{max(seen.different, at_least):,}"


def _value(column: Column, value: float, *, coarse: bool = False) -> str:
    if column.kind == "time":
        try:
            moment = _EPOCH + timedelta(microseconds=value)
        except OverflowError:
            return "no year of four digits"
        day = coarse or column.type == "Date"
        return f"{moment:%Y-%m-%d}" if day else f"{moment:%Y-%m-%d %H:%M}"
    if column.kind == "span":
        return f"{number(value / 1e6)} s"
    whole = column.type.startswith(("Int", "UInt")) or value == floor(value)
    return f"{value:,.0f}" if whole and abs(value) < 1e9 else f"{value:.4g}"


def _short(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:23]}…"
