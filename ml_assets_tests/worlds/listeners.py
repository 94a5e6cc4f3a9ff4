"""Servers that alerts are sent to: a webhook and a mail server, with faults on demand."""

import json
import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, Literal, cast

Fault = Literal["500", "403", "redirect", "silence", "drip"]


@dataclass
class Webhook:
    """What a webhook was sent, and how it is to answer."""

    url: str = ""
    bodies: list[Any] = field(default_factory=list)
    raw: bytes = b""
    """All that came, whether it was taken or not."""
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    """Of the next requests, in their order; then all is well."""
    over: Event = field(default_factory=Event)
    """Set at the end: what waits then goes on."""


class _Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        hook = cast("_Server", self.server).hook
        body = self.rfile.read(int(self.headers["Content-Length"]))
        hook.raw += str(self.headers).encode() + body
        hook.paths.append(self.path)
        hook.headers.append(dict(self.headers))
        fault = hook.faults.pop(0) if hook.faults else None
        if fault == "silence":
            hook.over.wait(60)
            return
        if fault == "drip":
            self._drip(hook)
            return
        if fault is None:
            hook.bodies.append(json.loads(body))
        self.send_response({"500": 500, "403": 403, "redirect": 307}.get(fault or "", 200))
        if fault == "redirect":
            self.send_header("Location", f"{hook.url}/elsewhere")
        answer = b"" if fault else b"ok"  # as Slack answers
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _drip(self, hook: Webhook) -> None:
        """One byte of a header after another: no single read ever waits long."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        try:
            while not hook.over.wait(0.05):
                self.wfile.write(b"a")
        except OSError:
            return

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    hook: Webhook


@contextmanager
def webhook() -> Iterator[Webhook]:
    """An HTTP server on this machine."""
    server = _Server(("127.0.0.1", 0), _Hook)
    server.hook = Webhook(f"http://127.0.0.1:{server.server_address[1]}")
    with _running(server):
        yield server.hook
        server.hook.over.set()


@dataclass
class Mailserver:
    """What a mail server was given."""

    port: int = 0
    mails: list[Message] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    refuses: int = 0
    """So many mails are answered 451 first."""


class _Smtp(socketserver.StreamRequestHandler):
    """As much of RFC 5321 as smtplib speaks, with AUTH PLAIN (RFC 4954)."""

    def handle(self) -> None:
        box = cast("_MailTcp", self.server).box
        self._say("220 here")
        for line in iter(self.rfile.readline, b""):
            word, _, rest = line.decode().strip().partition(" ")
            match word.upper():
                case "EHLO":
                    self._say("250-here", "250 AUTH PLAIN")
                case "AUTH":
                    box.logins.append(rest)
                    self._say("235 welcome")
                case "RCPT":
                    box.recipients.append(rest.partition("<")[2].rstrip(">"))
                    self._say("250 fine")
                case "DATA":
                    self._take(box)
                case "QUIT":
                    self._say("221 bye")
                    return
                case _:
                    self._say("250 fine")

    def _take(self, box: Mailserver) -> None:
        self._say("354 go on")
        lines: list[bytes] = []
        for line in iter(self.rfile.readline, b".\r\n"):
            lines.append(line)
        if box.refuses:
            box.refuses -= 1
            self._say("451 later")
            return
        box.mails.append(message_from_bytes(b"".join(lines)))
        self._say("250 taken")

    def _say(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())


class _MailTcp(socketserver.ThreadingTCPServer):
    daemon_threads = True
    box: Mailserver


@contextmanager
def mailserver() -> Iterator[Mailserver]:
    """An SMTP server on this machine, without encryption."""
    server = _MailTcp(("127.0.0.1", 0), _Smtp)
    server.box = Mailserver(server.server_address[1])
    with _running(server):
        yield server.box


@contextmanager
def _running(server: socketserver.BaseServer) -> Iterator[None]:
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
