"""How much a table holds, as the database counts it: a stamp that changes when the rows do.

Counts, ends and sums cross the wire, no row. They are blind to a change that leaves every one of
them as it was, such as two values that change places. Postgres hashes the rows, and sees that too;
of any other database the rows are read again once a day. ``ml-assets run`` always reads them.
"""

import zlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ml_assets.spec.sources import SqlSource

if TYPE_CHECKING:
    import sqlalchemy as sa

_HASHING = ("postgresql",)
"""Databases that hash rows themselves."""
_PRIME = 1_000_003
"""Whole numbers are summed by their remainder: a sum of large ones would overflow or round."""


def stamp(
    connection: "sa.Connection",
    table: "sa.Table",
    source: SqlSource,
    conditions: "Sequence[sa.ColumnElement[bool]]",
) -> str | None:
    """What the database counts of the rows that meet the conditions; None: there are none."""
    import sqlalchemy as sa

    columns = [table.c[name] for name in source.columns]
    if connection.dialect.name in _HASHING:
        text = sa.cast(sa.func.row(*columns), sa.Text)
        measures = [sa.func.sum(sa.func.hashtextextended(text, 0))]
    else:
        measures = [m for column in columns for m in _measures(column)]
    query = sa.select(sa.func.count(), *measures).select_from(table).where(*conditions)
    count, *rest = connection.execute(query).one()
    return str([count, *map(str, rest)]) if count else None


def day_of(place: str, connection: "sa.Connection", now: datetime) -> str:
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
