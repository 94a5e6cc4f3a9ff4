"""Where a database URL leads, as its driver reads it: what selects the rows, without secrets."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qsl, unquote

_URL = re.compile(
    r"(?P<name>[\w\+]+)://"
    r"(?:(?P<user>[^:/]*)(?::(?P<password>[^@]*))?@)?"
    r"(?:(?:\[(?P<ipv6>[^/\?]+)\]|(?P<host>[^/:\?]+))?(?::(?P<port>[^/\?]*))?)?"
    r"(?:/(?P<database>[^\?]*))?(?:\?(?P<query>.*))?"
)
"""SQLAlchemy's own, which leaves unread what follows: another splitter would see another place."""
_SHOWN = {
    *("host", "hostaddr", "port", "dbname", "database", "server", "service", "service_name"),
    *("schema", "search_path", "unix_socket", "warehouse"),
}
"""Parameters that say where it leads, and are shown; of the others a digest is."""
_SEARCH_PATH = re.compile(r"-c ?search_path=[\w$, \"]+")
_SECRET = re.compile(r"pass|pwd|token|secret|credential|(^|_)key$|^user(name)?$|^uid$", re.I)
"""Parameters that say who connects: another password is no other place."""
_OF_POSTGRES = (
    *("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE"),
    *("PGSERVICE", "PGSERVICEFILE", "PGSYSCONFDIR", "PGOPTIONS"),
)
"""Variables that lead its drivers elsewhere, whatever the URL says."""


def database_place(url: str, environment: Mapping[str, str] | None = None) -> str:
    """``dialect://host:port/database``, with the parameters that may lead elsewhere; no user.

    Of a file of SQLite or DuckDB its absolute path. What is no database URL is named so: nothing is
    read there.
    """
    parts = _URL.match(url)
    if parts is None:
        return "no database URL"
    backend, database = parts["name"].split("+")[0], unquote(parts["database"] or "")
    host = f"[{parts['ipv6']}]" if parts["ipv6"] else parts["host"] or ""
    port = f":{parts['port']}" if parts["port"] else ""
    if backend in ("duckdb", "sqlite") and not host:
        database = _file(database)
    given = parse_qsl(parts["query"] or "", keep_blank_values=True)
    if backend == "postgresql":
        env = os.environ if environment is None else environment
        given += [(name, env[name]) for name in _OF_POSTGRES if env.get(name)]
    said = "&".join(sorted(_said(given)))
    return f"{backend}://{host}{port}/{database}{'?' if said else ''}{said}"


def _file(database: str) -> str:
    """The path of a file; ``file:`` stands before a URI of its own."""
    if database in ("", ":memory:"):
        return database
    scheme = "file:" if database.startswith("file:") else ""
    return scheme + str(Path(database.removeprefix(scheme)).resolve())


def _said(given: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, value in given:
        if _SECRET.search(name):
            continue
        if name == "odbc_connect":  # a list of parameters in one
            pairs = (part.partition("=") for part in value.split(";"))
            yield from _said((key, of) for key, _, of in pairs)
            continue
        plain = name.lower().removeprefix("pg") in _SHOWN or (
            name.lower().endswith("options") and _SEARCH_PATH.fullmatch(value)
        )
        shown = value if plain else f"sha256:{sha256(value.encode()).hexdigest()[:12]}"
        yield f"{name}={shown}"
