"""A request and its answer, free of any web framework; byte ranges; times as headers say them."""

import json
from dataclasses import dataclass, field
from email.message import Message
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ml_assets_tests.servers.lakefs.refusals import Invalid, Refused


@dataclass
class Request:
    method: str
    target: str
    """As it came: the path, still quoted, and the query."""
    headers: Message
    body: bytes = b""
    path: str = field(init=False)
    query: list[tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        parts = urlsplit("//host" + self.target if self.target.startswith("/") else self.target)
        self.path = unquote(parts.path)
        self.query = parse_qsl(parts.query, keep_blank_values=True)

    @property
    def raw_path(self) -> str:
        return self.target.partition("?")[0]

    def header(self, name: str) -> str:
        return self.headers.get(name) or ""

    def has(self, name: str) -> bool:
        return any(key == name for key, _ in self.query)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.query if key == name]

    def one(self, name: str, default: str = "") -> str:
        return next(iter(self.all(name)), default)

    def required(self, name: str) -> str:
        if not self.has(name):
            raise Invalid(f"Query argument {name} is required, but not found")
        return self.one(name)

    def flag(self, name: str) -> bool:
        return self.one(name).lower() in {"true", "1"}

    def number(self, name: str, default: int) -> int:
        text = self.one(name)
        if not text:
            return default
        if not text.lstrip("-").isdigit():
            raise Invalid(f"Invalid format for parameter {name}: {text!r} is no number")
        return int(text)

    def json(self, **required: type) -> dict[str, Any]:
        """The body; each of ``required`` is there and of its type."""
        try:
            value = json.loads(self.body or b"{}")
        except ValueError as error:
            raise Invalid(f"request body has an error: {error}") from error
        if not isinstance(value, dict):
            raise Invalid("request body has an error: value must be an object")
        for name, kind in required.items():
            if not isinstance(value.get(name), kind):
                raise Invalid(f"request body has an error: property {name!r} is missing")
        return value


@dataclass
class Response:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def as_json(value: object, status: int = 200, **headers: str) -> Response:
    return Response(
        status, json.dumps(value).encode(), {"Content-Type": "application/json", **headers}
    )


def http_time(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


class BadRange(Exception):
    """A Range header that cannot be read."""


class Unsatisfiable(BadRange, Refused):
    """A range beyond the end of the object."""

    status = 416

    def __init__(self, size: int) -> None:
        Refused.__init__(self, "Requested Range Not Satisfiable")
        self.size = size


def byte_range(spec: str, size: int) -> tuple[int, int]:
    """First and last byte of ``bytes=a-b``, ``bytes=a-`` or ``bytes=-n``; one range only."""
    unit, _, span = spec.partition("=")
    first, dash, last = (part.strip() for part in span.partition("-"))
    numbers = [part for part in (first, last) if part]
    if unit != "bytes" or not dash or not numbers or not all(part.isdigit() for part in numbers):
        raise BadRange(spec)
    if not first:
        if int(last) == 0:
            raise Unsatisfiable(size)
        return max(size - int(last), 0), size - 1
    start, end = int(first), int(last) if last else size - 1
    if start > size - 1:
        raise Unsatisfiable(size)
    if start > end:
        raise BadRange(spec)
    return start, min(end, size - 1)
