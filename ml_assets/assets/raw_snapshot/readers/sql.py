"""Tables in a SQL database, through SQLAlchemy: reflected, quoted, ranged by bound parameters."""

import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from ml_assets.assets.raw_snapshot.python_values import SQL_VALUES
from ml_assets.assets.raw_snapshot.readers.arrived_files import (
    Key,
    Looked,
    look_in_turn,
    range_of,
    rows_receipt,
)
from ml_assets.assets.raw_snapshot.readers.look_cache import Seen
from ml_assets.assets.raw_snapshot.readers.sql_database import (
    Database,
    SqlUrl,
    open_database,
    table_of,
)
from ml_assets.assets.raw_snapshot.schema import (
    Reading,
    check_names,
    type_text,
    type_values,
)
from ml_assets.assets.raw_snapshot.text_values import TextFormat
from ml_assets.errors import SourceError, counted, quoted
from ml_assets.settings.addresses import database_place
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.sources import SqlSource

if TYPE_CHECKING:
    import sqlalchemy as sa

_HASHING = ("duckdb", "postgresql")
"""Databases that hash rows themselves."""
_PRIME = 1_000_003
"""Whole numbers are summed by their remainder: a sum of large ones would overflow or round."""


def read_sql(
    name: str, source: SqlSource, sql_url: SqlUrl, window: PartitionWindow | None
) -> Reading:
    """Read the rows whose watermark lies in ``[window.start, window.end)``, or the whole table.

    Raises:
        SourceError: the database cannot be used, or the table does not hold what is declared.
    """
    with open_database(name, source.connection, sql_url) as database:
        table = _reflect(database, source)
        _check_placed(database, table, source)
        query = table.select().with_only_columns(*(table.c[c] for c in source.columns))
        query = query.where(*_in_window(table, source, window))
        rows = database.connection.execute(query).all()
        title = f"{database.title}, table {source.table}"
    title = f"{title} [{window.key}]" if window else title
    if not rows:
        span = f" with {_span(source, window)}" if window else ""
        raise SourceError(
            f"{title} has no rows{span}. A partition or table without rows is treated as a fault "
            "of its origin, not as data: load it, or ask for a partition that is there."
        )
    frame = _frame(rows, source, title)
    _check_range(frame, source, window, title)
    return Reading(frame, _receipt(frame, source, window))


def look_at_sql(
    name: str,
    source: SqlSource,
    sql_url: SqlUrl,
    partitions: Sequence[PartitionWindow] | None,
    seen: Seen | None,
    now: datetime,
) -> Looked:
    """Ask the database how much there is of each partition; rows are read where that changed.

    Where counts may not tell all (see ``_stamp``), they are read once a day as well. With a
    memory, partitions are looked at in turn (see ``look_in_turn``); without one all are, at once.

    Raises:
        SourceError: the database cannot be used, or the table has other columns than declared.
    """
    windows = [None] if partitions is None else partitions
    spans = {window.key if window else None: window for window in windows}

    def read(key: Key) -> dict[str, Any]:
        return read_sql(name, source, sql_url, spans[key]).receipt

    with open_database(name, source.connection, sql_url) as database:
        table, connection = _reflect(database, source), database.connection
        _check_placed(database, table, source)

        def stamp_of(key: Key) -> str | None:
            found = _stamp(connection, table, source, _in_window(table, source, spans[key]))
            return "no rows" if key is None and not found else found

        if seen is None:
            return Looked(tuple(key for key in spans if stamp_of(key)), {}, read)
        place = f"{database_place(sql_url(source.connection))} {source.table}"
        columns = [*source.columns.items(), source.watermark]
        places = {key: f"{place} {range_of(span)} {columns}" for key, span in spans.items()}

        def look(key: Key) -> str | None:
            found = stamp_of(key)
            return found and f"{found}{_day_of(places[key], connection, now)}"

        return look_in_turn(places, look, read, seen, now)


def _reflect(database: Database, source: SqlSource) -> "sa.Table":
    import sqlalchemy as sa

    table = table_of(database, source.table)
    check_names(list(table.c.keys()), source.columns, f"{database.title}, table {source.table}")
    if source.watermark and not isinstance(table.c[source.watermark].type, sa.DateTime):
        raise SourceError(
            f"{database.title}, table {source.table}: the watermark {source.watermark!r} is"
            f" {table.c[source.watermark].type}; a range needs a TIMESTAMP (SQLite: DATETIME)"
            " column. Change its type, or name another watermark in defs.yaml."
        )
    return table


def _check_placed(database: Database, table: "sa.Table", source: SqlSource) -> None:
    """Every row is of some partition: one without a watermark would never be read."""
    import sqlalchemy as sa

    if not source.partitioned or source.watermark is None or source.ignore_null_watermark:
        return
    column = table.c[source.watermark]
    if not column.nullable:
        return
    query = sa.select(sa.func.count()).select_from(table).where(column.is_(None))
    lost = database.connection.execute(query).scalar_one()
    if lost:
        raise SourceError(
            f"{database.title}, table {source.table}: {counted(lost, 'row')} without"
            f" {source.watermark!r} would belong to no partition, and never be read. Fill the"
            " column in and make it NOT NULL; or, to leave such rows out, set"
            " ignore_null_watermark: true for this source in defs.yaml."
        )


def _in_window(
    table: "sa.Table", source: SqlSource, window: PartitionWindow | None
) -> "list[sa.ColumnElement[bool]]":
    if window is None or source.watermark is None:
        return []
    column = table.c[source.watermark]
    return [column >= _bound(column, window.start), column < _bound(column, window.end)]


def _bound(column: "sa.Column[Any]", instant: datetime) -> datetime:
    """A zoned column is compared to a zoned time; one without a zone holds UTC."""
    utc = instant.astimezone(UTC)
    return utc if getattr(column.type, "timezone", False) else utc.replace(tzinfo=None)


_TEXT = {str, type(None)}
"""What a database hands out for times that it has no type for, as SQLite does."""
_ZONE = "UTC"
"""That of times which are written without one, as of those that have a type."""


def _frame(rows: Sequence[Any], source: SqlSource, title: str) -> pl.DataFrame:
    columns = zip(*rows, strict=True)
    values: dict[str, Sequence[object]] = dict(zip(source.columns, columns, strict=True))

    def place(row: int) -> str:
        named = ", ".join(f"{column} = {quoted(values[column][row])}" for column in source.key)
        return f"the row with {named}"

    for column, dtype in source.columns.items():
        if dtype in ("date", "datetime") and {type(one) for one in values[column]} <= _TEXT:
            text = pl.DataFrame({column: pl.Series(values[column], dtype=pl.String)})
            told = type_text(text, {column: dtype}, TextFormat(_ZONE)).required(title, place)
            values[column] = told[column].to_list()
    return type_values(values, source.columns, SQL_VALUES).required(title, place)


def _check_range(
    frame: pl.DataFrame, source: SqlSource, window: PartitionWindow | None, title: str
) -> None:
    """Times kept as text (SQLite) compare wrongly in another form than SQLAlchemy's own."""
    if window is None or source.watermark is None:
        return
    outside = frame.filter(
        ~pl.col(source.watermark).is_between(window.start, window.end, closed="left")
    )
    if outside.height:
        raise SourceError(
            f"{title}: asked for {_span(source, window)}, the database also gave"
            f" {quoted(outside[source.watermark][0])}. Its times are text that does not sort by"
            " time: store them as 'YYYY-MM-DD HH:MM:SS.ffffff' in UTC."
        )


def _span(source: SqlSource, window: PartitionWindow | None) -> str:
    if window is None:
        return ""
    return f"{window.start.isoformat()} <= {source.watermark} < {window.end.isoformat()}"


def _receipt(
    frame: pl.DataFrame, source: SqlSource, window: PartitionWindow | None
) -> dict[str, Any]:
    named = {"connection": source.connection, "table": source.table}
    return {**named, **rows_receipt(frame, source.watermark, window)}


def _stamp(
    connection: "sa.Connection",
    table: "sa.Table",
    source: SqlSource,
    conditions: "Sequence[sa.ColumnElement[bool]]",
) -> str | None:
    """A stamp of the rows that meet the conditions: it changes when they do. None: there are none.

    Counts, ends and sums cross the wire, no row. They are blind to a change that leaves every one
    of them as it was, such as two values that change places. Postgres and DuckDB hash the rows, and
    see that too; of any other database the rows are read again once a day. ``ml-assets run`` always
    reads them.
    """
    import sqlalchemy as sa

    columns = [table.c[name] for name in source.columns]
    if connection.dialect.name == "duckdb":
        measures = [sa.func.sum(sa.func.hash(*columns))]
    elif connection.dialect.name == "postgresql":
        text = sa.cast(sa.func.row(*columns), sa.Text)
        measures = [sa.func.sum(sa.func.hashtextextended(text, 0))]
    else:
        measures = [m for column in columns for m in _measures(column)]
    query = sa.select(sa.func.count(), *measures).select_from(table).where(*conditions)
    count, *rest = connection.execute(query).one()
    return str([count, *map(str, rest)]) if count else None


def _day_of(place: str, connection: "sa.Connection", now: datetime) -> str:
    """Another text once a day where the database does not hash its rows; else always empty.

    The day of each place begins at a time of its own, so that not all are read at once.
    """
    if connection.dialect.name in _HASHING:
        return ""
    begins = timedelta(seconds=zlib.crc32(place.encode()) % 86_400)
    return f"{(now - begins).date()}"


def _measures(column: "sa.Column[Any]") -> "list[sa.ColumnElement[Any]]":
    """The number of values, and what tells most about them for their type."""
    import sqlalchemy as sa

    kind, count = column.type, sa.func.count(column)
    if isinstance(kind, sa.Boolean):
        return [count, sa.func.sum(sa.case((column, 1), else_=0))]
    if isinstance(kind, sa.Integer):
        return [count, sa.func.max(column), sa.func.sum(column % _PRIME)]
    if isinstance(kind, sa.Numeric | sa.Float):
        return [count, sa.func.max(column), sa.func.sum(column)]
    if isinstance(kind, sa.String):
        length = sa.func.sum(sa.func.length(column))
        return [count, sa.func.min(column), sa.func.max(column), length]
    if isinstance(kind, sa.Date | sa.DateTime):
        return [count, sa.func.min(column), sa.func.max(column)]
    return [count]  # of a type that may have no order
