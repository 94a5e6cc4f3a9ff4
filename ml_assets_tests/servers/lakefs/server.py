"""The server: one port, a thread for each connection, faults before and after the answer."""

import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from ml_assets_tests.servers.lakefs import (
    garbage,
    presigned,
    rest_access,
    rest_history,
    rest_imports,
    rest_objects,
    rest_repositories,
    rest_routes,
    rest_staging,
    s3_gateway,
)
from ml_assets_tests.servers.lakefs.catalog import Catalog, Setup
from ml_assets_tests.servers.lakefs.exchange import Request, Response, as_json
from ml_assets_tests.servers.lakefs.faults import Fault, Faults
from ml_assets_tests.servers.lakefs.s3_xml import S3Error, error

REST = (
    rest_access,
    rest_repositories,
    rest_history,
    rest_objects,
    rest_staging,
    rest_imports,
)
"""Their import registers what they answer."""


@dataclass
class LakeFSServer:
    """What tests hold: where it is, its keys, what it keeps, and the faults to come."""

    endpoint: str
    catalog: Catalog
    faults: Faults

    @property
    def access_key(self) -> str:
        return self.catalog.setup.access_key

    @property
    def secret_key(self) -> str:
        return self.catalog.setup.secret_key

    def create_repository(self, name: str, default_branch: str = "main") -> None:
        namespace = f"{self.catalog.setup.blockstore}://tests/{name}"
        self.catalog.create(name, namespace, default_branch)

    def collect(self, repository: str, reference: str, path: str) -> None:
        """What a sweep of the garbage collector does: the bytes go, the entry stays."""
        entry, _ = self.catalog.read(self.catalog.repository(repository), reference, path)
        self.catalog.store.delete(entry.address)

    def collect_garbage(self, repository: str, *, days_later: float = 0) -> int:
        """A sweep by the repository's rules, as of so many days from now: how many objects went."""
        kept_by = self.catalog.repository(repository)
        return len(garbage.sweep(self.catalog, kept_by, days_later=days_later))


@contextmanager
def lakefs_server(setup: Setup | None = None, port: int = 0) -> Iterator[LakeFSServer]:
    """An empty server on this machine, and the object store below it on a port of its own."""
    catalog, faults = Catalog(setup or Setup()), Faults()
    with (
        _listening(_Server(catalog, faults, presigned.answer)) as catalog.store_endpoint,
        _listening(_Server(catalog, faults, _answer, port)) as endpoint,
    ):
        yield LakeFSServer(endpoint, catalog, faults)


@contextmanager
def _listening(http: "_Server") -> Iterator[str]:
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        catalog: Catalog,
        faults: Faults,
        answer: Callable[[Catalog, Request], Response],
        port: int = 0,
    ) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.catalog, self.faults, self.answer = catalog, faults, answer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to report; a bug of the server is."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "lakeFS/tests"

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def _serve(self) -> None:
        served = cast(_Server, self.server)
        request = Request(self.command, self.path, self.headers, self._body())
        fault = served.faults.strikes(request)
        if fault is None or fault.after or fault.cut is not None:
            response = served.answer(served.catalog, request)
        else:
            response = Response()
        if fault is None:
            self._send(response)
        elif fault.cut is not None:
            self._send(response, cut=fault.cut)
        elif fault.status:
            self._send(_failure(request, fault))
        else:
            self._reset()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = _serve

    def _body(self) -> bytes:
        if "chunked" in (self.headers.get("Transfer-Encoding") or "").lower():
            return b"".join(self._chunks())
        return self._exactly(int(self.headers.get("Content-Length") or 0))

    def _exactly(self, size: int) -> bytes:
        """A client that dies in the middle of a body has asked for nothing."""
        content = self.rfile.read(size)
        if len(content) < size:
            raise ConnectionAbortedError
        return content

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().partition(b";")[0] or b"0", 16):
            yield self._exactly(size)
            self._exactly(2)
        while (line := self.rfile.readline()) != b"\r\n":
            if not line:
                raise ConnectionAbortedError

    def _send(self, response: Response, cut: int | None = None) -> None:
        self.send_response(response.status)
        headers = dict(response.headers)
        if response.status not in {204, 304}:
            headers.setdefault("Content-Length", str(len(response.body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body[:cut])
        if cut is not None:
            self._reset(gently=True)

    def _reset(self, *, gently: bool = False) -> None:
        """The line breaks: with what was sent so far (``gently``), or at once (RST)."""
        self.close_connection = True
        self.wfile.flush()
        if not gently:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
        else:
            self.connection.shutdown(socket.SHUT_RDWR)


def _answer(catalog: Catalog, request: Request) -> Response:
    if request.path.startswith(rest_routes.PREFIX + "/") and not s3_gateway.is_signed(request):
        return rest_routes.answer(catalog, request)
    return s3_gateway.answer(catalog, request)


def _failure(request: Request, fault: Fault) -> Response:
    """In the words of the side that was asked."""
    words = {429: "Too many attempts, try again later", 503: "Slow down and retry"}
    said = words.get(fault.status, "injected fault")
    if request.path.startswith(rest_routes.PREFIX + "/"):
        return as_json({"message": said}, fault.status)
    response = error(S3Error("SlowDown" if fault.status == 503 else "InternalError"), request)
    response.status = fault.status
    return response
