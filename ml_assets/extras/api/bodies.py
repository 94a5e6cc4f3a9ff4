"""Bodies of a bounded size that say one thing: the middleware before every route of the API."""

import asyncio

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ml_assets.spec.documents import read_json

MOST_BYTES = 1 << 20


class Bodies:
    """ASGI middleware: reads a body whole; 413 where it is longer than that, 400 where it is no
    JSON, or none that is read in one way alone (a key twice, half a sign)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > MOST_BYTES:
                refusal = _refusal(413, f"The body has more than {MOST_BYTES:,} bytes.")
                return await refusal(scope, receive, send)
        try:
            if body:
                await asyncio.to_thread(read_json, body)
        except ValueError as error:  # a number of 5000 digits is no DocumentError
            return await _refusal(400, f"The body is no JSON: {error}.")(scope, receive, send)
        given = False

        async def replayed() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replayed, send)


def _refusal(status: int, said: str) -> JSONResponse:
    return JSONResponse({"error": said, "problems": []}, status)
