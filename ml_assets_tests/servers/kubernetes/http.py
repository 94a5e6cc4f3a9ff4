"""HTTP over TLS on 127.0.0.1: a thread a connection, all of which end with the server."""

import contextlib
import json
import logging
import socket
import socketserver
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any

from ml_assets_tests.servers.kubernetes import (
    access,
    certificates,
    discovery,
    errors,
    faults,
    logs,
    openapi,
    requests,
    tables,
    verbs,
)
from ml_assets_tests.servers.kubernetes.access import Wish
from ml_assets_tests.servers.kubernetes.errors import ApiError, Json
from ml_assets_tests.servers.kubernetes.faults import Fault, Faults
from ml_assets_tests.servers.kubernetes.kubelet import Kubelet
from ml_assets_tests.servers.kubernetes.recorder import Call, Calls
from ml_assets_tests.servers.kubernetes.requests import Request
from ml_assets_tests.servers.kubernetes.store import Store
from ml_assets_tests.servers.kubernetes.watching import Watch

_log = logging.getLogger(__name__)


class Cut(Exception):
    """The connection is reset in place of an answer."""


class Front(socketserver.ThreadingTCPServer):
    """The listening side; `handler` threads find the parts of the server here."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = True
    request_queue_size = 128

    def __init__(self, store: Store, kubelet: Kubelet, own: access.Access) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.store = store
        self.kubelet = kubelet
        self.access = own
        self.calls = Calls()
        self.failures: list[Exception] = []
        self.faults = Faults(self.reset_connections, store.end_watches)
        self._context = certificates.made().context()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.05}, name="api", daemon=True
        )

    @property
    def port(self) -> int:
        return self.server_address[1]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.reset_connections()
        self.server_close()

    def get_request(self) -> tuple[socket.socket, Any]:
        raw, address = self.socket.accept()
        if self.faults.down:
            self.faults.turned_away()
            _reset(raw)
            raise OSError("the API is down")
        secure = self._context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
        with self._lock:
            self._open.add(secure)
        return secure, address

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a connection ended", exc_info=True)

    def reset_connections(self) -> None:
        with self._lock:
            found = list(self._open)
        for connection in found:
            _reset(connection, close=False)


def _reset(connection: socket.socket, *, close: bool = True) -> None:
    """Send RST. A connection that a thread reads from is shut down, and closed by that thread."""
    with contextlib.suppress(OSError):
        linger = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if close:
            connection.close()
        else:
            socket.socket.shutdown(connection, socket.SHUT_RDWR)


class Handler(BaseHTTPRequestHandler):
    server: Front  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def setup(self) -> None:
        self.request.settimeout(600)
        super().setup()

    def handle(self) -> None:
        with contextlib.suppress(OSError, ssl.SSLError, ValueError):
            self.request.do_handshake()
            super().handle()

    def finish(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    # --- one call ---------------------------------------------------------------------------------

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self._answer(body)
        except Cut:
            self.close_connection = True
            _reset(self.connection, close=False)
        except OSError:
            self.close_connection = True
        except Exception as error:  # a bug of ours: shown by the fixture, 500 for the client
            self.server.failures.append(error)
            self.close_connection = True
            message = f"Internal error occurred: {error!r}"
            self._refuse(ApiError(500, "InternalError", message))

    def _answer(self, body: bytes) -> None:
        path, _ = requests.query_of(self.path)
        try:
            user = None
            if path not in ("/healthz", "/livez", "/readyz", "/version"):
                user = self.server.access.user_of(self.headers.get("Authorization"))
            if self._about_itself(path) or user is None:
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = requests.read(self.command, self.path, headers, body)
        except ApiError as error:
            self._refuse(error)
            return
        self._call(user, request)

    def _about_itself(self, path: str) -> bool:
        if path in ("/healthz", "/livez", "/readyz"):
            self._send(200, b"ok", "text/plain")
            return True
        found = discovery.document(path) or openapi.document(path)
        if found is not None:
            self._send_json(200, found)
        return found is not None

    def _call(self, user: access.User, request: Request) -> None:
        """Written down before it is answered: whoever has the answer finds the call."""
        wish, code = request.wish, 0
        try:
            fault = self.server.faults.take(wish)
            if fault:
                self._suffer(fault)
            self.server.access.check(user, wish)
            code, send = self._carry_out(user, request, fault)
        except ApiError as error:
            code, send = error.code, partial(self._refuse, error)
        finally:
            self.server.calls.add(_call_of(wish, user, code))
        send()

    def _suffer(self, fault: Fault) -> None:
        if fault.kind == "refuse":
            raise fault.error()
        if fault.kind == "reset":
            raise Cut
        if fault.kind == "late":
            time.sleep(fault.seconds)

    def _carry_out(
        self, user: access.User, request: Request, fault: Fault | None
    ) -> tuple[int, Callable[[], None]]:
        """The status, and what sends the answer."""
        if request.verb == "watch":
            return 200, self._watch(request, fault)
        if request.subresource == "log":
            return 200, self._log(request)
        if request.resource.kind == "SelfSubjectAccessReview":
            code, found = 201, review(user, request.body)
        else:
            code, found = verbs.answer(self.server.store, request)
            if tables.is_wanted(request.accept) and request.verb in ("get", "list"):
                found = self._as_table(request, found)
        found = request.resource.as_version(found, request.version)
        if fault and fault.kind == "reset after":
            raise Cut
        return code, partial(self._send_json, code, found, warnings=request.warnings)

    def _as_table(self, request: Request, found: Json) -> Json:
        now = self.server.store.clock.now()
        objects = found["items"] if request.verb == "list" else [found]
        meta = found["metadata"] if request.verb == "list" else {}
        return tables.table(request.resource, objects, meta, now)

    def _watch(self, request: Request, fault: Fault | None) -> Callable[[], None]:
        if "watch" not in request.resource.verbs:
            raise errors.method_not_allowed()
        events: Iterable[bytes] = Watch(self.server.store, request)
        if fault and fault.kind == "gone":
            event = {"type": "ERROR", "object": faults.gone().status}
            events = [json.dumps(event).encode() + b"\n"]
        elif fault and fault.kind == "stall":
            events = (b"" for _ in events)
        elif fault and fault.kind == "late":
            events = _late(events, fault.seconds)
        elif fault and fault.kind == "repeat":
            events = (event for each in events for event in (each, each))
        return partial(self._stream, "application/json", events)

    def _log(self, request: Request) -> Callable[[], None]:
        store, query = self.server.store, request.query
        pod = store.get(request.resource, request.namespace, request.name)
        try:
            name = logs.container_of(pod, query.get("container"))
            asked = logs.LogQuery.of(query, store.clock)
        except ValueError as error:
            raise errors.bad_request(str(error)) from None
        lines = self.server.kubelet.log(pod, name, asked, request.flag("previous"))
        if asked.follow:
            return partial(self._stream, "text/plain", lines)
        return partial(self._send, 200, b"".join(lines), "text/plain")

    # --- the wire ---------------------------------------------------------------------------------

    def _refuse(self, error: ApiError) -> None:
        self._send_json(error.code, error.status, error.wait)

    def _send_json(
        self, code: int, body: Json, wait: int = 0, warnings: Iterable[str] = ()
    ) -> None:
        more = [("Retry-After", str(wait))] if wait else []
        for text in warnings:
            escaped = text.replace('"', '\\"')
            more.append(("Warning", f'299 - "{escaped}"'))
        self._send(code, json.dumps(body, separators=(",", ":")).encode(), headers=more)

    def _send(
        self,
        code: int,
        body: bytes,
        kind: str = "application/json",
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _stream(self, kind: str, pieces: Iterable[bytes]) -> None:
        """Send pieces as they come; with an empty one only look whether the client is there."""
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for piece in pieces:
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            elif self._is_left():
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _is_left(self) -> bool:
        """Whether the client has hung up: it sends nothing in the midst of an answer."""
        self.connection.settimeout(0)
        try:
            return self.connection.recv(1) == b""
        except (ssl.SSLWantReadError, BlockingIOError):
            return False
        except OSError:
            return True
        finally:
            with contextlib.suppress(OSError):
                self.connection.settimeout(600)


def _call_of(wish: Wish, user: access.User, code: int) -> Call:
    where = (wish.namespace, wish.name, user.name)
    return Call(wish.verb, wish.group, wish.resource, wish.subresource, *where, code)


def _late(events: Iterable[bytes], seconds: float) -> Iterable[bytes]:
    for piece in events:
        if piece:
            time.sleep(seconds)
        yield piece


def review(user: access.User, body: Any) -> Json:
    """`kubectl auth can-i`."""
    asked = ((body or {}).get("spec") or {}).get("resourceAttributes") or {}
    wish = access.Wish(
        asked.get("verb", ""),
        asked.get("group", ""),
        asked.get("resource", ""),
        asked.get("subresource", ""),
        asked.get("namespace", ""),
        asked.get("name", ""),
    )
    return {**body, "metadata": {}, "status": {"allowed": access.allowed(user, wish)}}
