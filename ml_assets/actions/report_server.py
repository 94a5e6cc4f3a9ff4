"""Serves the first page and the evaluation reports over HTTP, to this machine only.

A browser does not open a file from a link, so `ml-assets ui` serves the linked pages. On a cluster
`ml-assets ops serve-reports` serves them to the login beside it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

from starlette.datastructures import Headers

from ml_assets.actions.home_page import HomePageEntry
from ml_assets.adapters.same_origin import refusal
from ml_assets.errors import SettingsError
from ml_assets.records.tracking.links import EXPERIMENTS_PAGE, SEARCH_PAGE
from ml_assets.reports.page import page, script_policy
from ml_assets.settings.addresses import taken

_PAGE = re.compile(r"/([a-z][a-z0-9_]{0,62})/([0-9a-f]{16}\.html)")
"""Pipeline and model: what has no such name is not served."""
_EXPERIMENTS = re.compile(rf"/([a-z][a-z0-9_]{{0,62}})/{re.escape(EXPERIMENTS_PAGE)}")
_SEARCH = re.compile(rf"/([a-z][a-z0-9_]{{0,62}})/({re.escape(SEARCH_PAGE)})")
_CARD = re.compile(r"/([a-z][a-z0-9_]{0,62})/card/([a-z][a-z0-9_]{0,62})/([0-9a-zA-Z:.+-]{1,40})")
"""Pipeline, table and partition; ``all`` is every partition."""
Page = Callable[[str], str | None]
CardPage = Callable[[str, str, str], str | None]
Home = Callable[[], Mapping[str, HomePageEntry]]
_SECURE = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def _nothing(*_: str) -> None:
    """No page of runs, and no data card."""


@contextmanager
def serving_reports(
    folder: Path,
    url: str,
    experiments: Page = _nothing,
    card: CardPage = _nothing,
    refresh: Callable[[], None] = lambda: None,
    port: int | None = None,
    home: Home = dict,
) -> Iterator[None]:
    """Serve ``folder/<pipeline>/<model>.html`` at a local address until the block is left.

    Args:
        url: what links lead to; its path, if it has one, is before that of each page.
        experiments: pipeline -> the page of its runs, made anew each time; None: there is none.
        card: pipeline, table and partition -> its data card, likewise.
        refresh: brings into the folder what other homes have put meanwhile.
        port: of the loopback address, which a proxy at ``url`` asks; None: ``url`` is local itself.
        home: the state of each pipeline for the first page, asked anew each time.

    Raises:
        SettingsError: the port is taken.
    """
    parts = urlsplit(url)
    host = (parts.hostname if port is None else None) or "127.0.0.1"
    number = port or parts.port or 80
    try:
        server = _Server((host, number), _Handler)
    except OSError as error:
        setting = "that of ML_ASSETS_REPORTS_URL, or --port"
        raise SettingsError(taken("The reports", host, number, error, setting)) from error
    server.experiments, server.card, server.refresh = experiments, card, refresh
    server.home = home
    server.folder, server.below = folder.resolve(), parts.path
    server.scheme = parts.scheme
    server.names = {_name(one, parts.scheme) for one in (parts.netloc, f"localhost:{number}")}
    thread = Thread(target=server.serve_forever, name="reports", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    folder: Path
    below: str
    """The path of the address, before that of each page."""
    experiments: Page
    card: CardPage
    refresh: Callable[[], None]
    home: Home
    scheme: str
    """Of the address that a browser asks."""
    names: set[str]
    """What a browser may call this server: a page elsewhere cannot make it be another's."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]  it is made with this handler

    def do_GET(self) -> None:
        page, policy, status = None, {}, HTTPStatus.NOT_FOUND
        body = b"There is no such report.\n"
        if reason := self._refusal():
            status, body = HTTPStatus.FORBIDDEN, f"refused: {reason}\n".encode()
        elif asked := _EXPERIMENTS.fullmatch(self._asked()):
            page, policy = self._experiments(asked[1]), {"Content-Security-Policy": script_policy()}
        else:
            page = self._page()
        if page is not None:
            status, body = HTTPStatus.OK, page
        self.send_response(status)
        for name, value in {**_SECURE, **policy, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a person's own browser is no news."""

    def _asked(self) -> str:
        """The path below the address; empty outside of it."""
        try:
            path, below = urlsplit(self.path).path, self.server.below
        except ValueError:  # http://[x/
            return ""
        return path.removeprefix(below) if path.startswith(f"{below}/") else ""

    def _refusal(self) -> str | None:
        """Why another site's page gets nothing, in one line."""
        host = self.headers.get("Host", "")
        if _name(host, self.server.scheme) not in self.server.names:
            return f"it asks for the host {host[:100]!r}, which is not this server's name."
        raw = [(n.lower().encode(), v.encode("latin-1")) for n, v in self.headers.items()]
        return refusal("GET", Headers(raw=raw))

    def _experiments(self, pipeline: str) -> bytes | None:
        page = self.server.experiments(pipeline)
        return None if page is None else page.encode()

    def _page(self) -> bytes | None:
        path = self._asked()
        if path == "/" or _PAGE.fullmatch(path):
            self.server.refresh()
        if path == "/":
            return _first_page(self.server.folder, self.server.below, self.server.home())
        table = _CARD.fullmatch(unquote(path))
        if table:
            card = self.server.card(*table.groups())
            return None if card is None else card.encode()
        found = _PAGE.fullmatch(path) or _SEARCH.fullmatch(path)
        file = self.server.folder.joinpath(*found.groups()) if found else None
        if file is None or file.resolve() != file:
            return None  # a symbolic link may lead anywhere
        try:
            return file.read_bytes()
        except OSError:
            return None


def _name(host: str, scheme: str) -> str:
    """As a browser writes it: in lower case, without the port that its scheme has anyway."""
    return host.lower().removesuffix({"http": ":80", "https": ":443"}.get(scheme, ""))


def _first_page(folder: Path, below: str, states: Mapping[str, HomePageEntry]) -> bytes:
    """Each pipeline: its state, and the reports that there are, newest first."""
    files = sorted(folder.glob("*/*.html"), key=lambda f: f.stat().st_mtime, reverse=True)
    reports: dict[str, list[tuple[str, datetime]]] = {}
    for file in files:
        name = file.parent.name
        if _PAGE.fullmatch(f"/{name}/{file.name}"):
            written = datetime.fromtimestamp(file.stat().st_mtime, UTC)
            reports.setdefault(name, []).append((file.name, written))
    shown = {
        name: (states.get(name), reports.get(name, [])) for name in sorted({*states, *reports})
    }
    return page("home.html", pipelines=shown, below=below, experiments=EXPERIMENTS_PAGE).encode()
