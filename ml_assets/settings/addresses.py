"""Addresses in the environment: of pages, S3 and a lakeFS server, without passwords; whether a
server of ours can listen at one; and where a database URL leads."""

import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from ml_assets.errors import SettingsError

_LAKEFS = "lakefs://"
_LAKEFS_PLACE = re.compile(r"lakefs://([a-z0-9][a-z0-9-]{2,62})(?:/(\w[-\w]{0,62}))?", re.ASCII)
"""lakeFS's own rules for the names of repositories and branches."""
_LISTENS = "0A"
"""The state of a socket that listens, as /proc/net/tcp writes it."""


def web_address(env: Mapping[str, str], name: str, default: str) -> str:
    """The http(s) address that a variable gives, without its last slash.

    Raises:
        SettingsError: it is none, or it holds a user or password.
    """
    value = (env.get(name) or default).rstrip("/")
    if _userinfo(value):
        raise SettingsError(f"{name} holds a user or password; links are shown to everybody.")
    parts = parts_of(name, value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise SettingsError(f"{name} is {value!r}; expected an address such as {default}.")
    return value


def parts_of(name: str, value: str) -> SplitResult:
    """The parts of the address that a variable gives.

    Raises:
        SettingsError: it cannot be read as one.
    """
    try:
        parts = urlsplit(value)
        _ = _userinfo(value) or parts.port  # a password may stand where a port is looked for
    except ValueError as error:
        shown = "" if "@" in value else f" {value!r}"  # its reader may repeat a password
        raise SettingsError(
            f"{name} holds no address that can be read{shown}: its host is none, or its port is not"
            " a number up to 65535. Expected an address such as http://127.0.0.1:3000."
        ) from (None if "@" in value else error)
    return parts


def beside(
    port: int, free: Callable[[int], int], environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Variables that move the servers of ``ml-assets ui`` to a port and free ones behind it.

    An address that is set stays.

    Args:
        free: the first port from a given one on that nobody uses.
    """
    env = os.environ if environment is None else environment
    names = ["ML_ASSETS_REPORTS_URL"]
    if urlsplit(env.get("MLFLOW_TRACKING_URI", "")).scheme not in ("http", "https"):
        names.append("ML_ASSETS_MLFLOW_URL")
    found = {"ML_ASSETS_UI_URL": port}
    for name in names:
        if not env.get(name):
            found[name] = port = free(port + 1)
    return {name: f"http://127.0.0.1:{at}" for name, at in found.items() if not env.get(name)}


def require_free(host: str, port: int, whose: str, setting: str) -> None:
    """Return where a server of ours may listen.

    Raises:
        SettingsError: another program uses the port, or the host is no address of this machine.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
    except OSError as error:
        raise SettingsError(taken(whose, host, port, error, setting)) from error


def is_served(host: str, port: int) -> bool:
    """Return whether something listens there."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def taken(whose: str, host: str, port: int, error: OSError, setting: str) -> str:
    """Say that a server of ours cannot listen, which process does, and what to set instead."""
    return (
        f"{whose} cannot be served at {host}:{port}: {error.strerror}{_holder(port)}. End what uses"
        f" the port, or choose another one: {setting}."
    )


def _holder(port: int) -> str:
    """Who listens on a port, in brackets; nothing where this machine does not tell.

    Of a command the name alone: what stands behind it may be a secret.
    """
    sockets = set[str]()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            rows = [row.split() for row in Path("/proc/net", table).read_text().splitlines()[1:]]
            listening = (row for row in rows if row[3] == _LISTENS)
            sockets |= {f"socket:[{r[9]}]" for r in listening if r[1].endswith(f":{port:04X}")}
    for process in Path("/proc").glob("[0-9]*") if sockets else ():
        with suppress(OSError):  # another user's, or it ended
            if any(str(one.readlink()) in sockets for one in (process / "fd").iterdir()):
                return f" (by {(process / 'comm').read_text().strip()}, process {process.name})"
    return " (by a process of another user)" if sockets else ""


def without_secrets(url: str) -> str:
    """A URL or a path without user, password, options and fragment, any of which may be secret."""
    try:
        parts = urlsplit(url.replace(f"://{_userinfo(url)}", "://", 1))
    except ValueError:
        return "an address that cannot be read"
    return f"{parts.scheme}://{parts.netloc}{parts.path}" if parts.scheme else url


def password_forms(url: str) -> tuple[str, ...]:
    """The password of a URL in each form in which a driver may repeat it."""
    password = _userinfo(url).removesuffix("@").partition(":")[2]
    plain = unquote(password)
    return tuple(form for form in dict.fromkeys((password, plain, quote(plain))) if form)


def _userinfo(url: str) -> str:
    """User and password of a URL up to its last "@"; a password of a database may hold "/"."""
    found = None if _WEB_PORT.match(url) else _USERINFO.match(url)
    return found[1] if found else ""


def is_s3(location: str) -> bool:
    """Return whether a location is an address on S3, and no folder."""
    return location.startswith("s3://")


def s3_address(name: str, value: str, *, or_else: str = "") -> str:
    """``s3://bucket/prefix``, without its last slash.

    Args:
        or_else: what the variable may be instead, for the message.

    Raises:
        SettingsError: it is none, or it holds a user or password.
    """
    if _userinfo(value):
        raise SettingsError(
            f"{name} holds a user or password; it is shown to everybody. Credentials come from"
            " AWS_ACCESS_KEY_ID and its like."
        )
    parts = parts_of(name, value)
    if parts.scheme != "s3" or not parts.hostname or parts.query or parts.fragment:
        raise SettingsError(
            f"{name} names no place to store to; expected {or_else}s3://bucket/prefix (its"
            " credentials come from AWS_ACCESS_KEY_ID and its like)."
        )
    return value.rstrip("/")


@dataclass(frozen=True)
class LakeFs:
    """A lakeFS server and who we are there: ``LAKEFS_*``."""

    endpoint: str
    s3_endpoint: str
    """The address of its S3 gateway; by default the same address."""
    access_key: str
    secret_key: str = field(repr=False)


def is_lakefs(location: str) -> bool:
    """Return whether snapshots are kept on a lakeFS server."""
    return location.startswith(_LAKEFS)


def lakefs_place(location: str) -> tuple[str, str]:
    """Repository and branch of ``lakefs://repository[/branch]``.

    Raises:
        SettingsError: it is none.
    """
    place = _LAKEFS_PLACE.fullmatch(location)
    if place is None:
        shown = "holds a user or password" if "@" in location else f"is {location!r}"
        raise SettingsError(
            f"ML_ASSETS_SNAPSHOTS {shown}; expected lakefs://repository or"
            " lakefs://repository/branch (default main). Keys come from LAKEFS_ACCESS_KEY_ID and"
            " LAKEFS_SECRET_ACCESS_KEY, never from the address."
        )
    return place[1], place[2] or "main"


def read_lakefs(environment: Mapping[str, str] | None = None) -> LakeFs:
    """Return where the lakeFS server is, and the keys to it.

    Raises:
        SettingsError: one is missing, or no address.
    """
    env = os.environ if environment is None else environment
    needed = ("LAKEFS_ENDPOINT", "LAKEFS_ACCESS_KEY_ID", "LAKEFS_SECRET_ACCESS_KEY")
    missing = [name for name in needed if not env.get(name)]
    if missing:
        raise SettingsError(
            f"ML_ASSETS_SNAPSHOTS names a lakeFS repository, and {' and '.join(missing)}"
            f" {'is' if len(missing) == 1 else 'are'} not set. Expected: the address of the server,"
            " such as http://127.0.0.1:8000, and a pair of keys that it gave out."
        )
    endpoint = _one_spelling(web_address(env, "LAKEFS_ENDPOINT", "http://127.0.0.1:8000"))
    endpoint = endpoint.removesuffix("/api/v1").rstrip("/")
    return LakeFs(
        endpoint,
        _one_spelling(web_address(env, "LAKEFS_S3_ENDPOINT", endpoint)),
        env["LAKEFS_ACCESS_KEY_ID"],
        env["LAKEFS_SECRET_ACCESS_KEY"],
    )


def _one_spelling(address: str) -> str:
    """An http(s) address with its host in lower case, without the port that its scheme has anyway:
    a store is known by it."""
    parts = urlsplit(address)
    host, usual = parts.hostname or "", {"http": 80, "https": 443}[parts.scheme]
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port in (None, usual) else f":{parts.port}"
    return parts._replace(netloc=host + port).geturl()


_URL = re.compile(
    r"(?P<name>[\w\+]+)://"
    r"(?:(?P<user>[^:/]*)(?::(?P<password>[^@]*))?@)?"
    r"(?:(?:\[(?P<ipv6>[^/\?]+)\]|(?P<host>[^/:\?]+))?(?::(?P<port>[^/\?]*))?)?"
    r"(?:/(?P<database>[^\?]*))?(?:\?(?P<query>.*))?"
)
"""SQLAlchemy's own, which leaves unread what follows: another splitter would see another place."""
_USERINFO = re.compile(r"[\w+.-]+://((?:[^:/]*(?::[^@]*)?@)?(?:[^/?#@]*@)*)")
"""Where ``_URL`` finds user and password, and whatever stands before a later "@" of the host."""
_WEB_PORT = re.compile(r"https?://[^/?#@]*:\d+[/?#]")
"""A port with a path behind it: an "@" there begins no host, in a web address."""
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
    host = host.rpartition("@")[2]  # before it stands the end of a password
    if parts["password"] and "@" in database:
        host, port, database = "", "", database.rpartition("@")[2]
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
