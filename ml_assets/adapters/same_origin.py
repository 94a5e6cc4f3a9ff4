"""Guards the served pages against requests from other sites.

None of these servers has a login, and a browser lets any page send requests to this machine. So a
request has to name one of our hosts, since an attacker's name could lead here too. A request that
changes something has to come from our own page, or from a program that is no browser, and has to be
a POST of JSON, which no form and no link can send.
"""

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, QueryParams
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_READS = ("GET", "HEAD", "OPTIONS")
_JSON = ("application/json", "application/graphql")
_OURS = ("same-origin", "none")
"""Sec-Fetch-Site of our own page and of what a person typed; ``same-site`` is another port."""
_FRAMED = ((b"x-frame-options", b"SAMEORIGIN"), (b"x-content-type-options", b"nosniff"))


def guard(hosts: Iterable[str]) -> list[Middleware]:
    """The middleware for an ASGI application that is asked at these names, and at loopback's."""
    allowed = sorted({*LOOPBACK, *hosts} - {""})
    return [
        Middleware(TrustedHostMiddleware, allowed_hosts=allowed, www_redirect=False),
        Middleware(SameOrigin),
    ]


class SameOrigin:
    """ASGI middleware that answers 403, and why, to what another site's page asks."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        method = scope["method"] if scope["type"] == "http" else "WEBSOCKET"
        asked = "query" in QueryParams(scope["query_string"])  # Dagster's own page sends ?op=NAME
        in_address = asked and scope["path"].endswith("/graphql")
        reason = refusal(method, Headers(scope=scope), graphql_in_address=in_address)
        if reason is not None:
            answer = PlainTextResponse(f"refused: {reason}\n", status_code=403)
            return await answer(scope, receive, send)

        async def framed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_FRAMED]
            await send(message)

        return await self.app(scope, receive, framed)


def refusal(method: str, headers: Headers, *, graphql_in_address: bool = False) -> str | None:
    """Return why a request is refused, in one line; None: it may pass. Its first Host was checked
    before.

    Args:
        method: of HTTP, or WEBSOCKET for a handshake, which may carry anything later.
        graphql_in_address: it asks GraphQL by its address, which a link and a picture can do.
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    if len(headers.getlist("host")) > 1:
        return "it has more than one Host header."
    if graphql_in_address:
        return "GraphQL is asked in the body of a POST, not in an address."
    if method in _READS:
        linked = headers.get("sec-fetch-mode", "navigate") == "navigate"
        if site in _OURS or (linked and headers.get("sec-fetch-dest", "document") == "document"):
            return None
        return f"another site may link here, not load from here (Sec-Fetch-Site: {site})."
    if origin is not None and not is_same(origin, headers.get("host", "")):
        return f"it comes from a page of {origin[:100]!r}, not from this server's own."
    if site not in _OURS:
        return f"it comes from a page of another site (Sec-Fetch-Site: {site})."
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method != "WEBSOCKET" and kind not in _JSON:
        return f"its Content-Type is {kind[:100]!r}; expected one of {', '.join(_JSON)}."
    return None


def is_same(origin: str, host: str) -> bool:
    """Return whether host and port are the same; a proxy that ends TLS changes the scheme."""
    try:
        parts = urlsplit(origin)
    except ValueError:  # http://[evil
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
