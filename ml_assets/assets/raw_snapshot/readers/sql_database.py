"""A database that a source names by its connection: opened, and its tables as they are.

A URL may hold a password, so no message holds a URL: a database is named by its connection.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from ml_assets.errors import SourceError, did_you_mean, install, quoted

if TYPE_CHECKING:
    import sqlalchemy as sa

SqlUrl = Callable[[str], str]
"""Connection name -> URL."""
_EXTRAS = {"duckdb": "duckdb", "postgresql": "postgres"}
"""Kind of database -> the extra of this package that holds a driver for it."""
_FILES = ("duckdb", "sqlite")
"""Databases that are a file."""
_MISWRITTEN = (
    "A value is not written as the type of its column says; SQLite keeps a time as text,"
    " 'YYYY-MM-DD HH:MM:SS.ffffff'. Correct it at the origin, or read a view that converts it."
)


@dataclass(frozen=True)
class Database:
    """An open connection and how messages call it."""

    connection: "sa.Connection"
    title: str


def first_rows(
    connection: str, table: str, sql_url: SqlUrl, most: int
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns of a table that no spec declares yet, and some rows of it.

    Raises:
        SourceError: the database cannot be used, or has no such table.
    """
    with open_database(f"{connection}.{table}", connection, sql_url) as database:
        found = table_of(database, table)
        rows = database.connection.execute(found.select().limit(most)).all()
        return [column.name for column in found.columns], [tuple(row) for row in rows]


@contextmanager
def open_database(name: str, connection: str, sql_url: SqlUrl) -> Iterator[Database]:
    """Connect, and turn what the driver raises into an error that holds no secret."""
    import sqlalchemy as sa
    from sqlalchemy import exc

    setting = f"ML_ASSETS_SQL_{connection}"
    try:
        url = sa.make_url(sql_url(connection))
    except exc.ArgumentError:
        # The cause is left out: it may quote the URL.
        raise SourceError(
            f"{name}: {setting} is not a database URL. Write dialect://user:password@host/database,"
            " such as sqlite:////data/weather.db"
        ) from None
    title = f"{name}: the {url.get_backend_name()} database of {setting}"
    _check_password(url, name, setting)
    _check_file(url, name, setting)
    try:
        reading = {"read_only": True} if url.get_backend_name() == "duckdb" else {}
        engine = sa.create_engine(url, poolclass=sa.pool.NullPool, connect_args=reading)
    except (exc.NoSuchModuleError, ModuleNotFoundError) as error:
        extra = _EXTRAS.get(url.get_backend_name())
        remedy = f": {install(extra)};" if extra else ","
        raise SourceError(
            f"{title} needs a driver that is not installed"
            f" ({quoted(_scrub(str(error), url))}). Install it{remedy} or write a URL for a"
            " driver that is."
        ) from None
    try:
        with engine.connect() as opened:
            yield Database(opened, title)
    except (exc.SQLAlchemyError, ValueError, TypeError, OverflowError) as error:
        reason = str(getattr(error, "orig", None) or error) or type(error).__name__
        said = quoted(_scrub(reason.splitlines()[0], url))
        remedy = _remedy(url, setting) if isinstance(error, exc.SQLAlchemyError) else _MISWRITTEN
        raise SourceError(f"{title} could not be read: {said}. {remedy}") from (
            error if _scrub(str(error), url) == str(error) else None
        )
    finally:
        engine.dispose()


def _remedy(url: "sa.URL", setting: str) -> str:
    if url.get_backend_name() == "duckdb":
        return (
            f"Check {setting}; if it is in use, end the program that writes to this file: DuckDB"
            " lets one process write, or any number read."
        )
    return f"Check {setting}, that the server runs, and that this user may read the table."


def _check_password(url: "sa.URL", name: str, setting: str) -> None:
    """A driver would tell the end of a password as a host: the URL is cut at its first "@"."""
    if "@" in (url.host or "") or (url.password and "@" in (url.database or "")):
        raise SourceError(
            f"{name}: {setting} has more than one @, and what follows the first is taken for the"
            " host. Write an @ within the password as %40, a / as %2F and a : as %3A."
        )


def _check_file(url: "sa.URL", name: str, setting: str) -> None:
    """SQLite would create a missing file; here it is a mistake."""
    if url.get_backend_name() not in _FILES or not url.database or url.database == ":memory:":
        return
    if not url.database.startswith("file:") and not Path(url.database).is_file():
        raise SourceError(
            f"{name}: {setting} is not set, or names a file that is not there: {url.database}. Set"
            f" {setting} to the database's URL, or ML_ASSETS_SOURCES to the folder that holds it;"
            " the demo's is laid out by: ml-assets demo"
        )


def _scrub(text: str, url: "sa.URL") -> str:
    secrets = [str(url.password or ""), *(str(v) for v in url.query.values())]
    for secret in filter(None, secrets):
        for form in {secret, quote(secret), quote_plus(secret)}:
            text = text.replace(form, "***")
    return text


def table_of(database: Database, named: str) -> "sa.Table":
    import sqlalchemy as sa
    from sqlalchemy import exc

    schema, _, table_name = named.rpartition(".")
    try:
        if database.connection.dialect.name == "duckdb":
            return _duckdb_table(database.connection, schema, table_name)
        table = sa.Table(
            table_name, sa.MetaData(), schema=schema or None, autoload_with=database.connection
        )
        return _as_stored(table) if database.connection.dialect.name == "sqlite" else table
    except exc.NoSuchTableError as error:
        names = sa.inspect(database.connection).get_table_names(schema=schema or None)
        raise SourceError(
            f"{database.title} has no table {named!r}; it has {sorted(names)[:10]}."
            f"{did_you_mean(table_name, names)}"
            " Correct the table's name: in defs.yaml, 'table' of this source."
        ) from error


def _as_stored(table: "sa.Table") -> "sa.Table":
    """SQLite's values as they are: SQLAlchemy takes any text for true, and rounds decimals."""
    import sqlalchemy as sa

    class Truth(sa.Integer):
        def result_processor(self, dialect: object, coltype: object) -> Any:
            def stored(value: Any) -> Any:
                return bool(value) if value in (0, 1) else value

            return stored

    for column in table.columns:
        if isinstance(column.type, sa.Boolean):
            column.type = Truth()
        elif isinstance(column.type, sa.Numeric) and not isinstance(column.type, sa.Float):
            column.type = sa.Float()
    return table


def _duckdb_table(connection: "sa.Connection", schema: str, name: str) -> "sa.Table":
    """A table or a view of DuckDB, whose values come as the driver has them.

    The dialect reflects by catalogs of Postgres that DuckDB has not, and rounds decimals.
    """
    import sqlalchemy as sa
    from sqlalchemy import exc

    query = sa.text(
        "SELECT column_name, data_type, is_nullable = 'YES' FROM information_schema.columns"
        " WHERE table_catalog = current_database() AND table_name = :name"
        " AND table_schema = coalesce(:schema, current_schema()) ORDER BY ordinal_position"
    )
    found = connection.execute(query, {"schema": schema or None, "name": name}).all()
    if not found:
        raise exc.NoSuchTableError(name)
    named = {"DATE": sa.Date, "VARCHAR": sa.String, "BIGINT": sa.BigInteger}
    columns: list[sa.Column[Any]] = []
    for column, kind, nullable in found:
        moment = kind.startswith("TIMESTAMP")
        other = named.get(kind, sa.types.NullType)
        dtype = sa.DateTime(timezone=kind.endswith("ZONE")) if moment else other()
        columns.append(sa.Column(column, dtype, nullable=nullable))
    return sa.Table(name, sa.MetaData(), *columns, schema=schema or None)
