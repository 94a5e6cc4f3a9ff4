"""A real S3 server on this machine, that answers with an error when it is told to."""

import logging
import math
import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import boto3
import pytest

SECRET = "hush-this-is-no-key"
BUCKET = "bucket"
_PIECE = 1 << 16


class Rights(Protocol):
    """What one access key may do."""

    def may(self, method: str, path: str, query: str) -> bool: ...


@dataclass
class S3Server:
    """What tests ask of it."""

    endpoint: str
    faults: "Faults"
    rights: dict[str, Rights]
    """Access key -> what it may do; any other may do everything."""

    @cached_property
    def client(self) -> Any:
        """One for all: to make another takes a quarter of a second."""
        return boto3.Session().client("s3", endpoint_url=self.endpoint, region_name="us-east-1")

    def everything(self) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return [item["Key"] for page in pages for item in page.get("Contents", ())]

    def flip(self, key: str) -> None:
        content = bytearray(self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read())
        content[len(content) // 2] ^= 1
        self.client.put_object(Bucket=BUCKET, Key=key, Body=bytes(content))


@dataclass
class Faults:
    """What it does instead of answering a request."""

    failing: int = 0
    """So many more requests are answered with an error; -1: all of them."""
    at: str = ""
    """Only those whose path holds this."""
    status: str = "503 Slow Down"
    code: str = "SlowDown"
    held: threading.Event | None = None
    """They wait for this first."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    bytes_per_second: float = 0.0
    """What it answers with comes no faster, to all who ask together; 0: as fast as it can."""
    hits: int = 0
    """Requests that a fault has hit."""
    torn: dict[str, int] = field(default_factory=dict)
    """Method -> how many more of its requests break off in the midst of what they carry."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    _free_at: float = 0.0

    def strikes(self, method: str, path: str) -> bool:
        with self.lock:
            self.requests.append((method, path))
            if self.failing == 0 or self.at not in path:
                return False
            self.failing -= self.failing > 0
            self.hits += 1
            return True

    def tears(self, method: str) -> bool:
        with self.lock:
            left = self.torn.get(method, 0)
            self.torn[method] = max(0, left - 1)
            self.hits += left > 0
            return left > 0

    def paced(self, answer: Iterable[bytes]) -> Iterator[bytes]:
        """The answer in pieces, each when the line is free again."""
        with self.lock:
            self.hits += 1
        for data in answer:
            for begin in range(0, len(data), _PIECE):
                piece = data[begin : begin + _PIECE]
                with self.lock:
                    now = time.monotonic()
                    free = max(now, self._free_at) + len(piece) / (
                        self.bytes_per_second or math.inf
                    )
                    self._free_at = free
                time.sleep(free - now)
                yield piece


class Faulty:
    """A WSGI application before another one."""

    def __init__(self, app: Any, faults: Faults, rights: dict[str, Rights]) -> None:
        self._app, self._faults, self._rights = app, faults, rights

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        method, path, query = (
            environ[name] for name in ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING")
        )
        status, code = self._faults.status, self._faults.code
        if not self._faults.strikes(method, f"{path}?{query}"):
            who = re.search(r"Credential=([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
            known = self._rights.get(who[1]) if who else None
            if known is None or known.may(method, path, query):
                if method == "PUT" and self._faults.tears(method):
                    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0) // 2)
                    _break_off(environ)
                answer = self._app(environ, start_response)
                if method == "GET" and self._faults.tears(method):
                    return _half(answer, environ)
                return self._faults.paced(answer) if self._faults.bytes_per_second else answer
            status, code = "403 Forbidden", "AccessDenied"
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if self._faults.held is not None:
            self._faults.held.wait()
        start_response(status, [("Content-Type", "application/xml")])
        return [f"<Error><Code>{code}</Code><Message>-</Message></Error>".encode()]


def _half(answer: Iterable[bytes], environ: dict[str, Any]) -> Iterator[bytes]:
    whole = b"".join(answer)
    yield whole[: len(whole) // 2]
    _break_off(environ)


def _break_off(environ: dict[str, Any]) -> None:
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        environ["wsgi.input"].read()  # the rest would be taken for the next request
    raise ConnectionResetError  # the server takes it for a client that has gone


@contextmanager
def s3_server(monkeypatch: pytest.MonkeyPatch, address: str = "127.0.0.1") -> Iterator[S3Server]:
    """A server with one empty bucket; the environment leads boto3 to it.

    Args:
        address: of this machine, where it listens: pods of a real cluster need one that they reach.
    """
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from moto.s3.models import s3_backends
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    faults = Faults()
    rights: dict[str, Rights] = {}
    app = Faulty(DomainDispatcherApplication(create_backend_app), faults, rights)
    http = make_server(address, 0, app, threaded=True)
    threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    server = S3Server(f"http://{address}:{http.server_port}", faults, rights)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    try:
        server.client.create_bucket(Bucket=BUCKET)
        yield server
    finally:
        http.shutdown()
        s3_backends.reset()
