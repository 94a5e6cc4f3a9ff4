"""The REST side: which function answers a path, who may ask, and how a refusal looks."""

import base64
import hmac
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from ml_assets_tests.servers.lakefs import tokens
from ml_assets_tests.servers.lakefs.catalog import Catalog
from ml_assets_tests.servers.lakefs.exchange import Request, Response, as_json
from ml_assets_tests.servers.lakefs.refusals import MergeConflict, Refused, Unauthorized

PREFIX = "/api/v1"

Answer = Callable[..., Response]

_open = {"/healthcheck", "/setup_lakefs", "/setup_comm_prefs", "/auth/login"}


class Routes:
    """Functions by method and path template (``/repositories/{repository}``)."""

    def __init__(self) -> None:
        self._routes: list[tuple[str, re.Pattern[str], Answer]] = []

    def __call__(self, method: str, template: str) -> Callable[[Answer], Answer]:
        named = re.sub(r"\{(repository|branch)\}(?=/)", r"(?P<\1>[^/]*)", template)
        pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", named))

        def register(function: Answer) -> Answer:
            self._routes.append((method, pattern, function))
            return function

        return register

    def find(self, method: str, raw_path: str) -> tuple[Answer, dict[str, str]] | None:
        for known, pattern, function in self._routes:
            found = pattern.fullmatch(raw_path) if known == method else None
            if found:
                return function, {key: unquote(part) for key, part in found.groupdict().items()}
        return None


route = Routes()


def answer(catalog: Catalog, request: Request) -> Response:
    """The answer to a request whose path starts with ``/api/v1``."""
    path = request.raw_path.removeprefix(PREFIX)
    try:
        if path not in _open:
            _authenticate(catalog, request)
        found = route.find(request.method, path)
        if found is None:
            return as_json({"message": "invalid API endpoint"}, 404)
        function, named = found
        if "repository" in named:
            return function(catalog, request, catalog.repository(named.pop("repository")), **named)
        return function(catalog, request, **named)
    except MergeConflict:
        return as_json({"reference": ""}, 409)
    except Refused as refused:
        return refusal(request, refused)


def refusal(request: Request, refused: Refused) -> Response:
    if request.method == "HEAD":
        return Response(refused.status)
    return as_json({"message": refused.message}, refused.status)


def empty(status: int = 204) -> Response:
    return Response(status)


def optional(body: dict[str, Any], name: str, default: Any) -> Any:
    """A field that may be missing or null."""
    value = body.get(name)
    return default if value is None else value


def _authenticate(catalog: Catalog, request: Request) -> None:
    scheme, _, token = request.header("Authorization").partition(" ")
    said = b""
    if scheme.lower() == "bearer":
        if not tokens.is_valid(catalog.setup.secret_key, token, catalog.clock()):
            raise Unauthorized
        return
    if scheme.lower() == "basic":
        try:
            said = base64.b64decode(token, validate=True)
        except ValueError as error:
            raise Unauthorized from error
    known = f"{catalog.setup.access_key}:{catalog.setup.secret_key}".encode()
    if not hmac.compare_digest(said, known):
        raise Unauthorized
