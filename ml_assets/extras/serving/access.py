"""Admits and counts requests: the middleware before every route.

Health probes need no token. Without any token the server listens only to this machine, and refuses
requests from pages of other sites that are open in a browser here.
"""

import hmac
import time
from collections.abc import Callable, Sequence

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ml_assets.adapters.same_origin import is_same
from ml_assets.extras.serving.metrics import Metrics

_OPEN = "/v2/health/"
_OURS = ("same-origin", "none")


def bearer_is_of(authorization: str, tokens: Sequence[str]) -> bool:
    """Return whether an ``Authorization`` header holds one of the tokens, in constant time."""
    kind, _, given = authorization.partition(" ")
    held = [hmac.compare_digest(given.strip().encode(), token.encode()) for token in tokens]
    return kind.lower() == "bearer" and any(held)


class Access:
    """ASGI middleware: 401 without a token, 403 to another site's page; counts every answer."""

    def __init__(
        self, app: ASGIApp, tokens: Sequence[str], metrics: Metrics, draining: Callable[[], bool]
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._metrics = metrics
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began, status = time.perf_counter(), 500

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self._draining():  # the client's next request finds another server
                    message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        try:
            refusal = self._refusal(scope)
            await (refusal or self._app)(scope, receive, counted)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self._metrics.requests.labels(route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if scope["path"].startswith(_OPEN):
            return None
        if not self._tokens:
            return _of_another_site(headers)
        if bearer_is_of(headers.get("authorization", ""), self._tokens):
            return None
        said = {
            "error": "The request has no valid token: send the header Authorization: Bearer TOKEN,"
            " with one of ML_ASSETS_SERVE_TOKENS."
        }
        return JSONResponse(said, 401, {"www-authenticate": "Bearer"})


def _of_another_site(headers: Headers) -> JSONResponse | None:
    origin, hosts = headers.get("origin"), headers.getlist("host")
    same = len(hosts) < 2 and (origin is None or is_same(origin, "".join(hosts)))
    if same and headers.get("sec-fetch-site", "none") in _OURS:
        return None
    return JSONResponse(
        {"error": "The request is from a page of another site, or names two hosts."}, 403
    )
