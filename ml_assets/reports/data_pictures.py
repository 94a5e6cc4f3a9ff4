"""The pictures of the data stages, from the statistics in their records: no table is read again."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ml_assets.errors import counted
from ml_assets.reports.drawing import (
    Axis,
    Bar,
    Series,
    Stack,
    Tone,
    bar_chart,
    column_chart,
    line_chart,
)
from ml_assets.reports.inline_pictures import glance_at_bars, glance_at_lines
from ml_assets.reports.picture import Picture
from ml_assets.reports.row_charts import Spark, spark_chart
from ml_assets.spec.records import StageRecord

COLUMNS = 8
"""Most columns whose missing values are drawn, those with the most first."""
REASONS = 8
"""Most reasons of the quarantine that are drawn, those with the most rows first."""
CLASSES = 4
_TONES: tuple[Tone, ...] = ("one", "two", "three", "four")
_LAST = "unlabelled_share"
_LABEL_WORDS = {
    "label_rate": ("Label rate", "Share of positive labels, in % of the rows that have one."),
    "label_mean": ("Mean label", "Of the rows that have one."),
    _LAST: ("Rows without a label", "In % of all rows: their outcome is not known."),
}


def rows_at_a_glance(records: Sequence[StageRecord]) -> str:
    """Rows by partition; of a table that is read whole, what is missing in it."""
    if len(records) > 1 and _partitioned(records):
        rows = [float(record.rows or 0) for record in records]
        return _line("Rows by partition", rows, "rows", low=0.0)
    bars = [Bar(name, share) for name, share in _most_missing(records) if share]
    return glance_at_bars("Missing values, in % of a column", bars)


def contract_at_a_glance(records: Sequence[StageRecord]) -> str:
    """Return how many rows passed their contract, passed with a warning, and failed."""
    passed, warned, kept = (sum(counts) for counts in _judged(records))
    bars = [("passed", passed), ("warned", warned), ("quarantined", kept)]
    title = "Rows against the contract"
    return glance_at_bars(title, [Bar(name, float(count)) for name, count in bars])


def labels_at_a_glance(records: Sequence[StageRecord]) -> str:
    """Return what is to be learned, by partition: the label rate or its mean; else the rows."""
    told = [record.attributes.get("label_rate", {}) for record in records]
    for name in ("label_rate", "label_mean"):
        values = [rates[name] for rates in told if name in rates]
        if len(values) > 1:
            title = _LABEL_WORDS[name][0]
            return _line(f"{title} by partition", values, title)
    return rows_at_a_glance(records)


def _line(title: str, values: Sequence[float], name: str, low: float | None = None) -> str:
    points = [(float(x), y) for x, y in enumerate(values)]
    return glance_at_lines(title, [Series(name, points)], low)


def table_pictures(records: Sequence[StageRecord]) -> list[Picture]:
    """Return what a table holds: rows and missing values, by partition.

    Args:
        records: of the partitions, oldest first; or the one of a table that is read whole.
    """
    return [*_rows(records), *_missing(records)]


def contract_pictures(records: Sequence[StageRecord]) -> list[Picture]:
    """Return how the rows met their contract: passed, warned and quarantined, for which reasons."""
    return [
        *_contract(records),
        *_rows_kept_back(records),
        *_reasons(records),
        *_missing(records),
    ]


def feature_pictures(records: Sequence[StageRecord]) -> list[Picture]:
    """Return what is to be learned from what: labels, rows and missing values, by partition."""
    return [*_labels(records), *_classes(records), *_rows(records), *_missing(records)]


def _rows(records: Sequence[StageRecord]) -> list[Picture]:
    if not _partitioned(records):
        return []
    stack = Stack("rows", [float(record.rows or 0) for record in records])
    chart = column_chart("Rows by partition", [stack], _time(records), Axis("rows", 0.0))
    total = sum(record.rows or 0 for record in records)
    return [Picture("Rows", f"{total:,} in {counted(len(records), 'partition')}.", chart)]


def _contract(records: Sequence[StageRecord]) -> list[Picture]:
    passed, warned, kept = _judged(records)
    words = (
        f"{counted(sum(passed), 'row')} passed, {sum(warned):,} passed with a warning,"
        f" {sum(kept):,} are in quarantine."
    )
    parts: list[tuple[str, list[int], Tone]] = [
        ("passed", passed, "good"),
        ("warned", warned, "warn"),
        ("quarantined", kept, "bad"),
    ]
    if _partitioned(records):
        stacks = [Stack(name, [float(v) for v in values], tone) for name, values, tone in parts]
        chart = column_chart("Contract by partition", stacks, _time(records), Axis("rows", 0.0))
    else:
        bars = [Bar(name, float(sum(values)), tone=tone) for name, values, tone in parts]
        chart = bar_chart("Contract", bars, start=0.0, digits=0)
    return [Picture("Rows against the contract", words, chart)]


def _judged(records: Sequence[StageRecord]) -> tuple[list[int], list[int], list[int]]:
    """Rows of each record that passed, that passed with a warning, and that did not."""
    warned = [_count(record, "warned") for record in records]
    passed = [(r.rows or 0) - w for r, w in zip(records, warned, strict=True)]
    return passed, warned, [_count(record, "quarantined") for record in records]


def _rows_kept_back(records: Sequence[StageRecord]) -> list[Picture]:
    """The few that did not pass, on a scale where they can be seen."""
    warned = [float(_count(record, "warned")) for record in records]
    kept = [float(_count(record, "quarantined")) for record in records]
    if not _partitioned(records) or not sum(warned) + sum(kept):
        return []
    stacks = [Stack("warned", warned, "warn"), Stack("quarantined", kept, "bad")]
    chart = column_chart(
        "Rows that broke the contract, by partition", stacks, _time(records), Axis("rows", 0.0)
    )
    return [Picture("Rows that broke the contract", "The same, without those that passed.", chart)]


def _reasons(records: Sequence[StageRecord]) -> list[Picture]:
    """The checks that keep rows back, by partition; a row that breaks two counts for both."""
    told: list[Mapping[str, int]] = [record.attributes.get("reasons", {}) for record in records]
    total = Counter[str]()
    for counts in told:
        total.update(counts)
    ranked = sorted(total, key=lambda name: (-total[name], name))[:REASONS]
    if not ranked:
        return []
    left = (
        f" The first {REASONS} of {counted(len(total), 'reason')}." if len(total) > REASONS else ""
    )
    if _partitioned(records):
        rows = {name: [float(counts.get(name, 0)) for counts in told] for name in ranked}
        sparks = [
            Spark(name, rows[name], f"{rows[name][-1]:,.0f} (Σ {total[name]:,})", "four")
            for name in ranked
        ]
        span = (records[0].partition or "", records[-1].partition or "")
        chart = spark_chart("Quarantined rows by reason and partition", sparks, span)
        words = (
            "Rows that each check keeps back, each on its own scale; the numbers are the last"
            " partition's and, in brackets, the sum of all."
        )
    else:
        bars = [Bar(name, float(total[name]), tone="bad") for name in ranked]
        chart = bar_chart("Quarantined rows by reason", bars, start=0.0, digits=0)
        words = "Rows that each check keeps back."
    return [Picture("Why rows are in quarantine", words + left, chart)]


def _missing(records: Sequence[StageRecord]) -> list[Picture]:
    told = [record for record in records if "missing" in record.attributes]
    shares = [record.attributes["missing"] for record in told]
    most = dict(_most_missing(told))
    ranked = [*most][:COLUMNS]
    if not ranked:
        return []
    left = f" The first {COLUMNS} of {counted(len(most), 'column')}." if len(most) > COLUMNS else ""
    if _partitioned(records):
        sparks = [
            Spark(
                name,
                [100 * share.get(name, 0.0) for share in shares],
                f"{_percent(shares[-1].get(name, 0.0))} (≤ {_percent(most[name] / 100)})",
            )
            for name in ranked
        ]
        span = (told[0].partition or "", told[-1].partition or "")
        chart = spark_chart("Missing values by partition", sparks, span)
        words = (
            "Share of a column's values, each on its own scale; the numbers are the last"
            " partition's and, in brackets, the highest."
        )
    else:
        bars = [Bar(name, most[name]) for name in ranked]
        chart = bar_chart("Missing values", bars, start=0.0, digits=1)
        words = "In % of a column's values."
    return [Picture("Missing values", words + left, chart)]


def _most_missing(records: Sequence[StageRecord]) -> list[tuple[str, float]]:
    """Columns and the largest share of their values that is missing, in %, the worst first."""
    shares = [record.attributes.get("missing", {}) for record in records]
    columns = {name for share in shares for name in share}
    most = [(name, 100 * max(share.get(name, 0.0) for share in shares)) for name in columns]
    return sorted(most, key=lambda one: (-one[1], one[0]))


def _labels(records: Sequence[StageRecord]) -> list[Picture]:
    """One line for each number that the records have of their labels."""
    if not _partitioned(records):
        return []
    told = [record.attributes.get("label_rate", {}) for record in records]
    found: list[Picture] = []
    names = sorted(
        {name for rates in told for name in rates}, key=lambda name: (name == _LAST, name)
    )
    for name in names:
        share = name != "label_mean"
        scale = 100 if share else 1
        points = [(float(i), scale * rates[name]) for i, rates in enumerate(told) if name in rates]
        if name == _LAST and not any(value for _, value in points):
            continue
        title, words = _LABEL_WORDS.get(name, (name.replace("_", " ").capitalize(), ""))
        axis = Axis("%", 0.0) if share else Axis(title)
        chart = line_chart(
            f"{title} by partition", [Series(title, points)], _time(records), axis, wide=True
        )
        found.append(Picture(title, words, chart))
    return found


def _classes(records: Sequence[StageRecord]) -> list[Picture]:
    told = [record.attributes.get("class_shares", {}) for record in records]
    if not told or not told[-1]:
        return []
    names = list(told[-1])
    words = "Share of each class, in % of the rows that have a label."
    if not _partitioned(records):
        bars = [Bar(name, 100 * told[-1][name], tone="one") for name in names]
        return [Picture("Classes", words, bar_chart("Classes", bars, start=0.0, digits=1))]
    shown = sorted(names, key=lambda name: -told[-1][name])[:CLASSES]
    series = [
        Series(name, [(float(i), 100 * t.get(name, 0.0)) for i, t in enumerate(told)], tone)
        for name, tone in zip(shown, _TONES, strict=False)
    ]
    chart = line_chart("Classes by partition", series, _time(records), Axis("%", 0.0), wide=True)
    return [Picture("Classes", words, chart)]


def _time(records: Sequence[StageRecord]) -> Axis:
    """The partitions along x."""
    names = [record.partition or "" for record in records]
    return Axis("", 0.0, float(len(records) - 1), names)


def _partitioned(records: Sequence[StageRecord]) -> bool:
    return any(record.partition for record in records)


def _count(record: StageRecord, name: str) -> int:
    return int(record.attributes.get(name, 0))


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"
