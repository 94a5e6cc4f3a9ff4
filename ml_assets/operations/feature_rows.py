"""From new rows of a source to feature rows: the team's own function, on the published tables.

The new rows stand among the published ones, as they would have if they had landed.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import polars as pl

from ml_assets.errors import WindowError
from ml_assets.features.function import build_features, load_function
from ml_assets.features.window import Window
from ml_assets.operations.workplace import Workplace
from ml_assets.sources.schema import TYPES
from ml_assets.spec.partitions import PartitionWindow, windows
from ml_assets.spec.pipeline import SubjectSpec
from ml_assets.spec.sources import SourceSpec
from ml_assets.storage.layout import Address
from ml_assets.storage.snapshots import CommitId
from ml_assets.validation.compiled import audit
from ml_assets.validation.contract import Contract, Expectation, load_contract

_LONGEST_PARTITION = timedelta(days=62)


@dataclass(frozen=True)
class Sound:
    """Rows of a source by its contract: those that meet it, and those that do not, with why."""

    rows: pl.DataFrame
    refused: pl.DataFrame
    """With ``_reason``."""


@dataclass(frozen=True)
class FeatureRows:
    """Feature rows of the rows asked for, and what there is to know about them."""

    rows: pl.DataFrame
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Slice:
    """The new rows of one partition, and the partitions that its features look back at."""

    rows: pl.DataFrame
    window: PartitionWindow | None
    """None for a pipeline without partitions."""
    before: tuple[str, ...] = ()


def meet_contract(place: Workplace, subject: SubjectSpec, rows: pl.DataFrame) -> Sound:
    """Part the rows by the row-level critical expectations of the source's contract.

    What is said about a whole table (a number of rows, a share) is not about a few rows, and what
    is said about the label not about rows that have none yet.
    """
    contract = load_contract(place.folder / place.spec.sources[subject.source].contract)
    label = place.spec.label.column
    known = label in rows.columns and rows[label].null_count() < len(rows)
    rules = tuple(
        replace(e, kwargs={**e.kwargs, "mostly": 0.0})
        for e in contract.expectations
        if _is_about_a_row(e) and (known or e.kwargs.get("column") != label)
    )
    found = audit(rows, Contract(contract.name, rules))
    return Sound(found.clean, found.quarantined)


def make_feature_rows(
    place: Workplace, subject: SubjectSpec, rows: pl.DataFrame, commit: CommitId
) -> FeatureRows:
    """Call the feature function for every partition that the rows are in.

    Args:
        rows: of the subject's columns, typed, with unique keys.
        commit: the state of ``main`` to read the published tables at.

    Raises:
        WindowError: a row is in no partition, or the tables it looks back at are not published.
        SpecError: the feature function does not return what the spec declares.
    """
    spec = place.spec
    build = load_function(place.folder, spec.features.function, spec.name)
    made: list[pl.DataFrame] = []
    notes: list[str] = []
    for part in _slices(place, subject, rows):
        tables = {name: _table(place, commit, subject, name, part, notes) for name in spec.sources}
        span = part.window
        window = Window(span.key, span.start, span.end) if span else Window(None, None, None)
        frame = build_features(build, tables, window, spec)
        made.append(frame.join(part.rows, on=spec.features.key, how="semi"))
    return FeatureRows(pl.concat(made), tuple(notes))


def _is_about_a_row(expectation: Expectation) -> bool:
    critical = expectation.severity == "critical"
    return critical and not expectation.type.startswith("expect_table_")


def _slices(place: Workplace, subject: SubjectSpec, rows: pl.DataFrame) -> Iterator[_Slice]:
    if subject.time is None:
        yield _Slice(rows, None)
        return
    times = rows[subject.time]
    if times.null_count():
        raise WindowError(
            f"{subject.time!r} has no value in {times.null_count()} rows: it says which partition"
            " a row is in. Give each row one."
        )
    newest = times.max()
    assert isinstance(newest, datetime)
    known = windows(place.spec.partitions, newest + _LONGEST_PARTITION)
    places = [_place(place, known, time) for time in times]
    back = place.spec.features.look_back
    numbered = rows.with_columns(pl.Series("__partition", places))
    for (number,), part in sorted(numbered.partition_by("__partition", as_dict=True).items()):
        if number < back:
            raise WindowError(
                f"{place.name} looks back {back} partitions, but only {number} come before"
                f" {known[number].key}: rows from {known[back].key} on can be predicted."
            )
        before = tuple(span.key for span in known[number - back : number])
        yield _Slice(part.drop("__partition"), known[number], before)


def _place(place: Workplace, known: Sequence[PartitionWindow], time: datetime) -> int:
    number = bisect_right(known, time, key=lambda span: span.start) - 1
    if number < 0 or time >= known[number].end:
        first, last = (known[0].start, known[-1].end) if known else ("nothing", "nothing")
        raise WindowError(
            f"{time} is in no partition of {place.name}: they go from {first} to {last}."
            " Check the time and its zone, or move partitions.end."
        )
    return number


def _table(
    place: Workplace,
    commit: CommitId,
    subject: SubjectSpec,
    name: str,
    part: _Slice,
    notes: list[str],
) -> pl.LazyFrame:
    """A source's table as the feature function gets it."""
    source = place.spec.sources[name]
    frames = _published(place, commit, name, source, part)
    address = Address(place.name, "validated_table", name)
    current = address.at(part.window.key if part.window and source.partitioned else None)
    if place.store.exists(commit, current.table):
        frames.append(place.store.scan(commit, current.table))
    elif name != subject.source:
        notes.append(f"{current} is not published yet: features are made without it")
    if name == subject.source:
        new = part.rows.lazy()
        old = [frame.join(new, on=source.key, how="anti") for frame in frames]
        frames = [*old, new.select(list(source.columns))]
    empty = pl.LazyFrame(schema={column: TYPES[dtype] for column, dtype in source.columns.items()})
    return pl.concat(frames or [empty])


def _published(
    place: Workplace, commit: CommitId, name: str, source: SourceSpec, part: _Slice
) -> list[pl.LazyFrame]:
    """The partitions that are looked back at; a gap is an error, for features would be of less."""
    if not source.partitioned:
        return []
    address = Address(place.name, "validated_table", name)
    missing = [k for k in part.before if not place.store.exists(commit, address.at(k).table)]
    if missing:
        raise WindowError(
            f"Rows of {part.window.key if part.window else 'now'} look back at {address.key}"
            f" {', '.join(missing)}, which are not published. Publish them first:"
            f" ml-assets run {place.name} --through validated_table"
        )
    return [place.store.scan(commit, address.at(key).table) for key in part.before]
