"""Turns new rows of a source into feature rows: the team's own function, on the published tables.

The new rows stand among the published ones, as if they had arrived.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import polars as pl

from ml_assets.assets.feature_set.decode import feature_function
from ml_assets.assets.feature_set.feature_function import build_features, check_keys, load_function
from ml_assets.assets.feature_set.labels import deciding
from ml_assets.assets.raw_snapshot.schema import TYPES
from ml_assets.assets.validated_table.contract.compiled import audit
from ml_assets.assets.validated_table.contract.expectation_types import COMPILED, about
from ml_assets.assets.validated_table.contract.suite import (
    Contract,
    Expectation,
    columns_of,
    contract_of,
)
from ml_assets.errors import WindowError, counted, quoted
from ml_assets.records.recalls import require_sound
from ml_assets.spec.features import SubjectSpec
from ml_assets.spec.partitions import PartitionWindow, windows
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.sources import SourceSpec
from ml_assets.spec.window import Window
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, PipelineState

_LONGEST_PARTITION = timedelta(days=62)
_PARTITION = "__partition"
_ABOUT_NULLS = ("expect_column_values_to_not_be_null", "expect_column_values_to_be_null")


@dataclass(frozen=True)
class Sound:
    """Rows of a source by its contract: those that meet it, and those that do not, with why."""

    rows: pl.DataFrame
    refused: pl.DataFrame
    """The other rows, with ``_reason``."""
    notes: tuple[str, ...]
    """What the contract only warns of: a sentence for each statement that some row breaks."""


@dataclass(frozen=True)
class FeatureRows:
    """Feature rows of the rows asked for, and what there is to know about them."""

    rows: pl.DataFrame
    notes: tuple[str, ...]


def meet_contract(pipeline: Pipeline, subject: SubjectSpec, rows: pl.DataFrame) -> Sound:
    """Part the rows by the row-level critical expectations of the source's contract.

    What is said about a whole table (a number of rows, a share) is not about a few rows, and what
    is said about columns that are filled in later not about rows that are predicted before.
    """
    contract = contract_of(pipeline.folder, pipeline.spec.sources[subject.source])
    later = known_later(pipeline.spec, subject)
    rules = [
        replace(e, severity="critical", kwargs={**e.kwargs, "mostly": 0.0})
        for e in contract.expectations
        if about(e.type) == "row" and later.isdisjoint(columns_of(e))
    ]
    severities = {e.check_name: e.severity for e in contract.expectations}
    critical = tuple(e for e in rules if severities[e.check_name] == "critical")
    found = audit(rows, Contract(contract.name, critical))
    warned = [_warned(e, found.clean) for e in rules if severities[e.check_name] == "warning"]
    return Sound(found.clean, found.quarantined, tuple(filter(None, warned)))


def known_later(spec: PipelineSpec, subject: SubjectSpec) -> frozenset[str]:
    """The columns of the subject that a row may lack when it is predicted: no feature needs them.

    They are the label, and what the source says is filled in after the event.
    """
    source = spec.sources[subject.source]
    return frozenset({spec.label.column, *source.after_event}.intersection(source.columns))


def _warned(expectation: Expectation, rows: pl.DataFrame) -> str:
    """How many rows break a warning about the values of a column, and one value; empty: none."""
    column = expectation.kwargs.get("column")
    if column is None or expectation.type not in COMPILED or expectation.type in _ABOUT_NULLS:
        return ""
    found = audit(rows, Contract("warning", (expectation,)))
    odd = found.quarantined
    if odd.is_empty():
        return ""
    rule = found.results[0].reason.rpartition(": ")[0]
    them = "it is" if len(odd) == 1 else "they are"
    return (
        f"{counted(len(odd), 'row')} with an unusual {column}, {quoted(odd[column][0])} for one:"
        f" the contract warns that {rule}; {them} predicted all the same"
    )


def make_feature_rows(
    state: PipelineState, subject: SubjectSpec, rows: pl.DataFrame
) -> FeatureRows:
    """Call the feature function for every partition that the rows are in.

    Args:
        state: what the published tables are read from.
        rows: of the subject's columns, typed, with unique keys.

    Raises:
        WindowError: a row is in no partition, or the tables it looks back at are not published.
        SpecError: the feature function does not return what the spec declares.
    """
    pipeline, spec = state.pipeline, state.spec
    build = feature_function(pipeline)
    known = _known_windows(pipeline, subject, rows)
    made: list[pl.DataFrame] = []
    notes: dict[str, None] = {}
    for number, part in _by_partition(pipeline, subject, rows, known):
        tables = Tables(state, subject, part, known, number, notes)
        names = [*spec.sources, *spec.tables]
        given = tables.read(names, spec.features.look_back, number)
        window = deciding(tables.window(number), spec.label, unknown=True)
        frame = build_features(build, given, window, spec)
        made.append(frame.join(part.lazy(), on=spec.features.key, how="semi").collect())
    return FeatureRows(pl.concat(made), tuple(notes))


@dataclass(frozen=True)
class Tables:
    """The tables that functions read, with the new rows of one partition among them."""

    state: PipelineState
    subject: SubjectSpec | None
    """None: there are no new rows."""
    new: pl.DataFrame
    """The new rows of the subject; without one, the keys of the rows that are asked for."""
    known: Sequence[PartitionWindow]
    current: int | None
    """The partition of the new rows, by its number; None for a pipeline without partitions."""
    notes: dict[str, None]
    known_before: datetime | None = None
    """What became known at this moment or later is not there; None: all is that is published."""

    @property
    def pipeline(self) -> Pipeline:
        return self.state.pipeline

    def read(
        self, names: Sequence[str], look_back: int, number: int | None
    ) -> dict[str, pl.LazyFrame]:
        """Return what a function gets to make one partition: each table with its look-back.

        Raises:
            WindowError: a partition that is looked back at is not published, or there is none.
        """
        if number is not None and number < look_back:
            raise WindowError(
                f"{self.pipeline.name} looks back {counted(look_back, 'partition')}, and only"
                f" {number} lie before {self.known[number].key}. Predict rows of a later partition."
            )
        found: dict[str, pl.LazyFrame] = {}
        for name in names:
            numbers: Sequence[int | None] = [None]
            if number is not None and self.pipeline.spec.is_partitioned(name):
                numbers = range(number - self._back(name, look_back), number + 1)
            found[name] = pl.concat([self._partition(name, n) for n in numbers])
        return found

    def _back(self, name: str, look_back: int) -> int:
        """A table that changes slowly is not looked back at: one version of it is known."""
        source = self.pipeline.spec.sources.get(name)
        return 0 if source is not None and source.versioned else look_back

    def window(self, number: int | None) -> Window:
        """The span that a function makes rows for."""
        if number is None:
            return Window(None, None, None)
        span = self.known[number]
        return Window(span.key, span.start, span.end)

    def _partition(self, name: str, number: int | None) -> pl.LazyFrame:
        spec = self.pipeline.spec
        stage = "validated_table" if name in spec.sources else "derived_table"
        partition = self.known[number].key if number is not None else None
        address = Address(spec.name, stage, name, partition)
        published = self.state.exists(address.table)
        is_current = number is None or number == self.current
        made_new = is_current and (self._sees_new(name) or not published)
        if name in spec.tables and (made_new or self.known_before):
            return self._derived(name, number)
        is_new = is_current and (number is not None or self._is_subject(name))
        if not published and not is_new:
            raise WindowError(
                f"The features of {self.window(self.current).key or 'new rows'} are made from"
                f" {address}, which is not published. Publish it first:"
                f" ml-assets run {spec.name} --through {stage}"
            )
        old = [self._known(name, self._published(address))] if published else []
        if old and self._is_subject(name) and spec.label.ahead:  # its rows may lie before it
            new = self.new.lazy()
            old = [rows.join(new, on=spec.sources[name].key, how="anti") for rows in old]
        if self._is_subject(name) and is_current:
            return self._with_new(spec.sources[name], old)
        if not old:
            self.notes[f"{address} is not published yet: features are made without it"] = None
        return old[0] if old else _empty(spec.sources[name])

    def _known(self, name: str, rows: pl.LazyFrame) -> pl.LazyFrame:
        source = self.pipeline.spec.sources.get(name)
        if self.known_before is None or source is None or source.known_at is None:
            return rows
        known = (pl.col(source.known_at) < self.known_before).fill_null(False)
        key = self.pipeline.spec.features.key
        if self.subject is not None or not set(key) <= set(source.columns):
            return rows.filter(known)
        # nobody says which table the rows asked for come from: it may be this one
        own = rows.filter(~known).join(keys_of(self.new, key, source), on=key, how="semi")
        return pl.concat([rows.filter(known), own])

    def _published(self, address: Address) -> pl.LazyFrame:
        """What is published, unless it is recalled."""
        record = self.state.record(address)
        if record:
            require_sound(self.state.store, self.state.commit, record)
        return self.state.scan(address)

    def _with_new(self, source: SourceSpec, old: list[pl.LazyFrame]) -> pl.LazyFrame:
        """A row that has landed already is there once, as it is handed in."""
        new = self.new.lazy()
        others = [frame.join(new, on=source.key, how="anti") for frame in old]
        return pl.concat([*others, new.select(list(source.columns))])

    def _derived(self, name: str, number: int | None) -> pl.LazyFrame:
        table = self.pipeline.spec.tables[name]
        build = load_function(self.pipeline.folder, table.function, self.pipeline.name)
        cut = number if self.pipeline.spec.is_partitioned(name) else None
        rows = build(self.read(table.reads, table.look_back, cut), self.window(cut)).collect()
        check_keys(rows, table.key, f"the table {name!r}")
        return rows.lazy()

    def _is_subject(self, name: str) -> bool:
        return self.subject is not None and name == self.subject.source

    def _sees_new(self, name: str) -> bool:
        if name in self.pipeline.spec.sources:
            return self._is_subject(name)
        return any(self._sees_new(read) for read in self.pipeline.spec.tables[name].reads)


def keys_of(rows: pl.DataFrame, key: Sequence[str], source: SourceSpec) -> pl.LazyFrame:
    """The keys of rows as a source has them, whatever a function made of their types."""
    return rows.lazy().select(pl.col(name).cast(TYPES[source.columns[name]]) for name in key)


def _known_windows(
    pipeline: Pipeline, subject: SubjectSpec, rows: pl.DataFrame
) -> tuple[PartitionWindow, ...]:
    """Every partition up to the newest row's, whether it is over or not."""
    newest = rows[subject.time].max() if subject.time else None
    if not isinstance(newest, datetime):
        return ()
    return windows(pipeline.spec.partitions, newest + _LONGEST_PARTITION)


def _by_partition(
    pipeline: Pipeline, subject: SubjectSpec, rows: pl.DataFrame, known: Sequence[PartitionWindow]
) -> Iterator[tuple[int | None, pl.DataFrame]]:
    """The number of each partition that rows are in, and those rows."""
    if subject.time is None:
        yield None, rows
        return
    times = rows[subject.time]
    if times.null_count():
        raise WindowError(
            f"{subject.time!r} has no value in {counted(times.null_count(), 'row')}: it says which"
            " partition a row is in. Give each row one."
        )
    places = [_place(pipeline, known, time) for time in times]
    numbered = rows.with_columns(pl.Series(_PARTITION, places))
    for number in sorted(set(places)):
        yield number, numbered.filter(pl.col(_PARTITION) == number).drop(_PARTITION)


def _place(pipeline: Pipeline, known: Sequence[PartitionWindow], time: datetime) -> int:
    number = bisect_right(known, time, key=lambda span: span.start) - 1
    if number < 0 or time >= known[number].end:
        span = f"they go from {known[0].start} to {known[-1].end}" if known else "there is none yet"
        raise WindowError(
            f"{time} is in no partition of {pipeline.name}: {span}."
            " Check the time and its zone, or move partitions.end."
        )
    return number


def _empty(source: SourceSpec) -> pl.LazyFrame:
    return pl.LazyFrame(schema={name: TYPES[dtype] for name, dtype in source.columns.items()})
