"""The checks of a partition's feature rows before they are published.

One makes features again as they would have been before the future came; one replays a few rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from ml_assets.adapters.check_outcome import CheckOutcome
from ml_assets.assets.feature_set.feature_function import (
    FeatureFunction,
    build_features,
    load_function,
    writes_a_file,
)
from ml_assets.assets.feature_set.function_inputs import Reads, table_reads
from ml_assets.assets.feature_set.future_check import (
    Hidden,
    cannot_be_made,
    compare,
    moment_to_hide_from,
    nothing_to_hide,
    side_by_side,
)
from ml_assets.assets.feature_set.leak_checks import outcome, refusal
from ml_assets.assets.feature_set.parity import Replays, RowsOf
from ml_assets.errors import DiskRefuses, LeakError, MlAssetsError, StorageError, StoreAway
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.leaks import LeakFinding
from ml_assets.spec.sources import SourceSpec
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import PipelineState


@dataclass(frozen=True)
class JudgedRows:
    """The rows of a partition, or why it is not published."""

    rows: tuple[PipelineState, pl.LazyFrame] | None
    """With the state that they are made from."""
    checks: tuple[CheckOutcome, ...]
    error: MlAssetsError | None = None


class RowGuards:
    """Holds the partitions of a step to the future and to the path of a single prediction.

    Some are drawn. Where one is refused no other is published either: the same function made them.
    """

    def __init__(
        self,
        reads: Reads,
        partitions: Sequence[str | None],
        build: FeatureFunction,
        rows_of: RowsOf,
    ) -> None:
        self.build = build
        self.replays = Replays(reads.pipeline, partitions, rows_of)
        self.future = FutureGuard(reads, partitions)

    def judge(self, address: Address) -> JudgedRows:
        """The rows of a partition, if no guard refuses them."""
        replayed, differs = self.replays.checks(address.partition), self.replays.refusal(address)
        if self.future.stopped:
            return JudgedRows(None, replayed, _both(self.future.stopped, differs))
        state, rows = self.replays.rows(address)
        found, leaks = self.future.judge(state, address, self.build, rows)
        checks, refused = (*found, *replayed), _both(leaks, differs)
        return JudgedRows(None if refused else (state, rows), checks, refused)


def _both(future: MlAssetsError | None, parity: MlAssetsError | None) -> MlAssetsError | None:
    """Why a partition is not published, where two checks of its rows may say it."""
    if future is None or parity is None:
        return future or parity
    return LeakError(f"{future}\n    {parity}")


@dataclass(frozen=True)
class PastTables:
    """The tables of functions without what is known at a moment or later, derived ones included."""

    state: PipelineState
    moment: datetime | None

    def read(self, reads: Reads, partition: str | None) -> Mapping[str, pl.LazyFrame]:
        """Return what a function would have read: table name -> rows, the look-back included."""
        return {
            name: pl.concat([self._table(reads, name, address) for address in addresses])
            for name, addresses in reads.addresses(partition).items()
        }

    def _table(self, reads: Reads, name: str, address: Address) -> pl.LazyFrame:
        spec = reads.pipeline.spec
        if name in spec.sources:
            table, subject = self.state.scan(address), spec.features.subject
            is_subject = subject is not None and subject.source == name
            return _without(table, spec.sources[name], self.moment, is_subject=is_subject)
        if not _has_future(reads, name):
            return self.state.scan(address)
        own = table_reads(reads.pipeline, name)
        build = load_function(
            reads.pipeline.folder, spec.tables[name].function, reads.pipeline.name
        )
        return build(self.read(own, address.partition), own.window(address.partition))


class FutureGuard:
    """Examines some of the partitions of a step; where one leaks, the function makes no more."""

    def __init__(self, reads: Reads, keys: Sequence[str | None]) -> None:
        self.reads = reads
        self.examined = sampled(keys, reads.pipeline.spec.leaks.future_events.partitions)
        self.stopped: MlAssetsError | None = None
        """Why no other partition is published; None: none leaks so far."""

    def judge(
        self,
        state: PipelineState,
        address: Address,
        build: FeatureFunction,
        rows: pl.LazyFrame,
    ) -> tuple[tuple[CheckOutcome, ...], LeakError | None]:
        """Return the guard's check of a partition before it is published, and its error.

        Raises:
            StorageError: a store does not say what it holds, so that nobody knows whether it leaks.
        """
        if address.partition not in self.examined:
            return (), None
        pipeline = self.reads.pipeline
        try:
            found = examine_future(self.reads, state, address.partition, build, rows)
        except StorageError as error:
            self.stopped = error
            raise
        refused = refusal((found,), pipeline.spec, str(address))
        if refused:
            self.stopped = LeakError(f"not published, because {address} leaks")
        return (outcome(pipeline, found),), LeakError(refused) if refused else None


def examine_future(
    reads: Reads,
    state: PipelineState,
    partition: str | None,
    build: FeatureFunction,
    rows: pl.LazyFrame,
) -> LeakFinding:
    """Return whether the rows of a partition are the same without what was not known at a decision.

    Costs what it costs to make the partition once more.

    Raises:
        StoreAway, DiskRefuses: the rows could not be made for another reason than the function's.
    """
    spec = reads.pipeline.spec
    columns = tuple(f"{n}.{c}" for n, source in spec.sources.items() for c in source.after_event)
    known = list(_known_times(reads, state, partition))
    decided = rows.select(spec.features.decision_at).collect().to_series()
    moment = moment_to_hide_from(decided, known) if known else None
    if moment is None and not columns:
        return nothing_to_hide(
            "not judged: no event of the tables is known after a decision"
            if known
            else "not judged: no source says when its rows became known (known_at), or which"
            " columns are filled in after the event (after_event)"
        )
    events = sum(int((times >= moment).sum()) for times in known) if moment else 0
    hidden = Hidden(moment, events, columns)
    try:
        tables = PastTables(state, moment).read(reads, partition)
        again = build_features(build, tables, reads.window(partition), spec)
    except (StoreAway, DiskRefuses):
        raise
    except Exception as error:  # a team's function may raise anything
        return cannot_be_made(error, hidden)
    return compare_rows(build, rows, again, spec.features, hidden)


def compare_rows(
    build: FeatureFunction,
    rows: pl.LazyFrame,
    again: pl.LazyFrame,
    spec: FeaturesSpec,
    hidden: Hidden,
) -> LeakFinding:
    """Compare rows that a function made with those it made again: those of files in parts."""
    if writes_a_file(build):
        return compare(side_by_side(rows, again, spec.key), spec, hidden)
    return compare([(rows.collect(), again.collect())], spec, hidden)


def sampled(keys: Sequence[str | None], count: int) -> frozenset[str | None]:
    """Choose so many partitions, evenly spread: the first, then the last, then some between."""
    if count >= len(keys):
        return frozenset(keys)
    steps = max(1, count - 1)
    return frozenset(keys[round(number * (len(keys) - 1) / steps)] for number in range(count))


def _known_times(reads: Reads, state: PipelineState, partition: str | None) -> Iterator[pl.Series]:
    """When the rows became known, of each table that says so; what derived tables read as well."""
    waiting = [(reads, partition)]
    seen: set[Address] = set()
    while waiting:
        reader, key = waiting.pop()
        for name, addresses in reader.addresses(key).items():
            fresh = [address for address in addresses if address not in seen]
            seen.update(fresh)
            source = reader.pipeline.spec.sources.get(name)
            if source is None:
                own = table_reads(reader.pipeline, name)
                waiting += [(own, address.partition) for address in fresh]
            elif source.known_at and fresh:
                column = pl.col(source.known_at).drop_nulls()
                times = pl.concat([state.scan(one).select(column) for one in fresh])
                yield times.collect()[source.known_at]


def _without(
    table: pl.LazyFrame, source: SourceSpec, moment: datetime | None, *, is_subject: bool
) -> pl.LazyFrame:
    """What is predicted may become known at the moment of its own decision."""
    if source.known_at and moment is not None:
        known = pl.col(source.known_at)
        table = table.filter(known <= moment if is_subject else known < moment)
    schema = table.collect_schema()
    return table.with_columns(
        pl.lit(None, dtype=schema[name]).alias(name) for name in source.after_event
    )


def _has_future(reads: Reads, table: str) -> bool:
    """Whether a derived table is made from a source that something is hidden of."""
    spec = reads.pipeline.spec
    return any(
        bool(spec.sources[name].known_at or spec.sources[name].after_event)
        if name in spec.sources
        else _has_future(reads, name)
        for name in spec.tables[table].reads
    )
