"""History features on DuckDB: as-of joins that spill, with the arithmetic of polars.

Each feature is a narrow table of row numbers and values; the rows are joined with them at the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import narwhals as nw

from ml_assets.assets.feature_set.history_features import Lag, Trailing
from ml_assets.assets.feature_set.portable import Frame
from ml_assets.extras.duckdb_engine.database import Database, listed, quoted

_ROW, _AT, _KNOWN, _SUM, _COUNT = "__row", "__at", "__known", "__sum", "__count"
_TOGETHER = 4
"""Features that are joined to their rows at a time: each takes memory for all of its values."""
_TOTAL = f"(coalesce(upper.{_SUM}, 0.0) - coalesce(lower.{_SUM}, 0.0))"
_NUMBER = f"(coalesce(upper.{_COUNT}, 0.0) - coalesce(lower.{_COUNT}, 0.0))"


@dataclass(frozen=True)
class _Numbered:
    """Rows with their numbers, and the features that were made of them."""

    table: str
    features: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Table of numbers and values, and its columns."""


class DuckDBHistory:
    """``history_features`` on frames of DuckDB."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._numbered: dict[str, _Numbered] = {}

    def trailing_mean(
        self,
        rows: Frame,
        events: Frame,
        *,
        name: str,
        value: str,
        span: timedelta,
        by: Sequence[str],
        prior: float | None,
        weight: float,
        decision_at: str,
        known_at: str,
    ) -> Frame:
        """See ``history_features.trailing_mean``."""
        mean = f"CASE WHEN {_NUMBER} > 0 THEN {_TOTAL} / {_NUMBER} END"
        if prior is not None:
            mean = f"({_TOTAL} + {_double(prior * weight)}) / ({_NUMBER} + {_double(weight)})"
        totals = self._totals(events, value, by, known_at)
        found = self._numbered_rows(rows)
        added = self._in_span(found.table, totals, mean, name, span, by, decision_at)
        return self._frame(self._with(found, added, (name,)))

    def latest(
        self,
        rows: Frame,
        events: Frame,
        *,
        columns: Sequence[str],
        by: Sequence[str],
        within: timedelta,
        decision_at: str,
        known_at: str,
    ) -> Frame:
        """See ``history_features.latest``."""
        newest, found = self._newest(events, columns, by, known_at), self._numbered_rows(rows)
        at = f"r.{quoted(decision_at)}"
        added = self._as_of(found.table, newest, columns, columns, by, at, ">", within)
        return self._frame(self._with(found, added, tuple(columns)))

    def add_history(
        self,
        rows: Frame,
        events: Frame,
        *wanted: Lag | Trailing,
        by: Sequence[str],
        decision_at: str,
        known_at: str,
    ) -> Frame:
        """See ``history_features.add_history``."""
        found = self._numbered_rows(rows)
        for one in wanted:
            if isinstance(one, Lag):
                newest = self._newest(events, [one.column], by, known_at)
                at = f"r.{quoted(decision_at)} - {_interval(one.back)}"
                added = self._as_of(
                    found.table, newest, [one.column], [one.name], by, at, ">=", one.within
                )
            elif one.of in ("min", "max"):
                added = self._extreme(found.table, events, one, by, decision_at, known_at)
            else:
                totals = self._totals(events, one.column, by, known_at)
                asked = {"mean": f"{_TOTAL} / {_NUMBER}", "sum": _TOTAL, "count": _NUMBER}[one.of]
                value = f"CASE WHEN {_NUMBER} > 0 THEN {asked} END" if one.of != "count" else asked
                added = self._in_span(
                    found.table, totals, value, one.name, one.span, by, decision_at
                )
            found = self._with(found, added, (one.name,))
        return self._frame(found)

    def _numbered_rows(self, rows: Frame) -> _Numbered:
        sql = _sql(rows)
        if sql not in self._numbered:
            numbered = f"SELECT *, row_number() OVER () AS {_ROW} FROM ({sql})"
            self._numbered[sql] = _Numbered(self._database.table(numbered))
        return self._numbered[sql]

    def _with(self, found: _Numbered, table: str, columns: tuple[str, ...]) -> _Numbered:
        """The rows with one more feature; a few features at a time are joined."""
        more = _Numbered(found.table, (*found.features, (table, columns)))
        if len(more.features) < _TOGETHER:
            return more
        return _Numbered(self._database.table(f"SELECT * FROM {_joined(more)}"))

    def _frame(self, found: _Numbered) -> Frame:
        """The rows with their features, as a query; whoever asks for more features finds them."""
        made = self._database.query(f"SELECT * EXCLUDE ({_ROW}) FROM {_joined(found)}")
        self._numbered[_sql(made)] = found
        return made

    def _events(self, events: Frame, known_at: str, columns: str, value: str | None = None) -> str:
        table = self._database.table(_sql(events))
        there = f"isfinite(CAST({quoted(value)} AS DOUBLE)) AND " if value else ""
        return (
            f"SELECT {columns}, {quoted(known_at)} AS {_KNOWN}"
            f" FROM {table} WHERE {there}{quoted(known_at)} IS NOT NULL"
        )

    def _totals(self, events: Frame, value: str, by: Sequence[str], known_at: str) -> str:
        """Sum and count of the values by the moments at which one became known."""
        number = f"CAST({quoted(value)} AS DOUBLE) AS {_SUM}, CAST(1 AS DOUBLE) AS {_COUNT}"
        sql = self._events(events, known_at, ", ".join([*map(quoted, by), number]), value)
        return self._database.newest(sql, [*by, _KNOWN], [_SUM], [_SUM, _COUNT])

    def _newest(
        self, events: Frame, columns: Sequence[str], by: Sequence[str], known_at: str
    ) -> str:
        sql = self._events(events, known_at, listed([*by, *columns]))
        return self._database.newest(sql, [*by, _KNOWN], columns, [])

    def _in_span(
        self,
        rows: str,
        totals: str,
        value: str,
        name: str,
        span: timedelta,
        by: Sequence[str],
        decision_at: str,
    ) -> str:
        at = f"r.{quoted(decision_at)}"
        return self._database.table(
            f"SELECT r.{_ROW}, {value} AS {quoted(name)} FROM {rows} r"
            f" ASOF LEFT JOIN {totals} upper ON {_same(by, 'upper')}{at} > upper.{_KNOWN}"
            f" ASOF LEFT JOIN {totals} lower ON"
            f" {_same(by, 'lower')}{at} - {_interval(span)} > lower.{_KNOWN}"
        )

    def _as_of(
        self,
        rows: str,
        newest: str,
        columns: Sequence[str],
        names: Sequence[str],
        by: Sequence[str],
        at: str,
        after: str,
        within: timedelta,
    ) -> str:
        fresh = f"{at} - {_interval(within)} <= e.{_KNOWN}"
        values = [
            f"CASE WHEN {fresh} THEN e.{quoted(column)} END AS {quoted(name)}"
            for column, name in zip(columns, names, strict=True)
        ]
        return self._database.table(
            f"SELECT r.{_ROW}, {', '.join(values)} FROM {rows} r"
            f" ASOF LEFT JOIN {newest} e ON {_same(by, 'e')}{at} {after} e.{_KNOWN}"
        )

    def _extreme(
        self,
        rows: str,
        events: Frame,
        one: Trailing,
        by: Sequence[str],
        decision_at: str,
        known_at: str,
    ) -> str:
        """The least or the greatest value of the span: rows and events in one line of time."""
        names = [*map(quoted, by)]
        seen = self._events(events, known_at, ", ".join([*names, quoted(one.column)]), one.column)
        told = [
            *names,
            f"epoch_us({_KNOWN}) AS {_AT}",
            f"CAST({quoted(one.column)} AS DOUBLE) AS {_SUM}",
        ]
        asked = [*names, f"epoch_us({quoted(decision_at)})", "NULL"]
        entity = "".join(f" AND {name} IS NOT NULL" for name in names)
        parts = f"PARTITION BY {', '.join(names)}" if names else ""
        span = one.span // timedelta(microseconds=1)
        return self._database.table(
            f"SELECT {_ROW}, {one.of}({_SUM}) OVER ({parts} ORDER BY {_AT}"
            f" RANGE BETWEEN {span} PRECEDING AND 1 PRECEDING) AS {quoted(one.name)} FROM"
            f" (SELECT {', '.join(told)}, CAST(NULL AS BIGINT) AS {_ROW} FROM ({seen}{entity})"
            f" UNION ALL SELECT {', '.join(asked)}, {_ROW} FROM {rows}) QUALIFY {_ROW} IS NOT NULL"
        )


def _joined(found: _Numbered) -> str:
    columns = [f"{table}.{quoted(c)}" for table, names in found.features for c in names]
    joins = [f"JOIN {table} USING ({_ROW})" for table, _ in found.features]
    return (
        f"(SELECT {', '.join([f'{found.table}.*', *columns])} FROM {found.table} {' '.join(joins)})"
    )


def _sql(frame: Frame) -> str:
    native: Any = nw.to_native(frame)
    return native.sql_query()


def _same(by: Sequence[str], table: str) -> str:
    return "".join(f"r.{quoted(name)} = {table}.{quoted(name)} AND " for name in by)


def _interval(span: timedelta) -> str:
    return f"to_microseconds({span // timedelta(microseconds=1)})"


def _double(number: float) -> str:
    return f"CAST({number!r} AS DOUBLE)"
