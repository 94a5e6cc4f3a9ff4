"""Authenticates callers of the API: a name by its token, and whether it may change something.

Request bodies are bounded in size and unambiguous.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Annotated

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ml_assets.spec.documents import DocumentError, read_json


@dataclass(frozen=True)
class Caller:
    """The holder of a token, and what the token allows."""

    name: str
    """Written into the ledger and the tags of runs."""
    operator: bool
    """May launch runs and move models; else reads alone."""


_bearer = HTTPBearer(auto_error=False, description="A token of ML_ASSETS_API_READERS or _OPERATORS")


def reader(
    request: Request,
    given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Caller:
    """Whoever has a token."""
    found = caller_of(request.app.state.callers, given.credentials if given else "")
    if found is None:
        said = (
            "The request has no valid token: send the header Authorization: Bearer TOKEN, with one"
            " of ML_ASSETS_API_READERS or ML_ASSETS_API_OPERATORS."
        )
        raise HTTPException(401, said, {"WWW-Authenticate": "Bearer"})
    return found


def caller_of(callers: Mapping[str, Caller], token: str) -> Caller | None:
    """The holder of a token; to look takes the same time for each."""
    asked = token.encode()
    found = [one for held, one in callers.items() if compare_digest(asked, held.encode())]
    return found[0] if found else None


def operator(caller: Annotated[Caller, Depends(reader)]) -> Caller:
    """Whoever has the token of an operator."""
    if not caller.operator:
        raise HTTPException(
            403, f"{caller.name} may only read: this needs the token of an operator."
        )
    return caller


Reader = Annotated[Caller, Depends(reader)]
Operator = Annotated[Caller, Depends(operator)]


MOST_BYTES = 1 << 20
SECONDS = 10.0
"""For a body, from its first byte to its last one."""


class Bodies:
    """ASGI middleware: reads a body whole, of those alone who have a token; 413 where it is longer
    than that, 408 where it comes too slowly, 400 where it is no JSON, or none that is read in one
    way alone (a key twice, half a sign)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        try:
            async with asyncio.timeout(SECONDS):
                body = await _whole(receive) if _is_known(scope) else b""
        except ClientDisconnect:
            return None
        except TimeoutError:
            refusal = _refusal(408, f"The body took more than {SECONDS:.0f} seconds to come.")
            return await refusal(scope, receive, send)
        if len(body) > MOST_BYTES:
            refusal = _refusal(413, f"The body has more than {MOST_BYTES:,} bytes.")
            return await refusal(scope, receive, send)
        try:
            if body:
                await asyncio.to_thread(read_json, body)
        except DocumentError as error:
            return await _refusal(400, f"The body is not JSON: {error}.")(scope, receive, send)
        given = False

        async def replayed() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replayed, send)


def _is_known(scope: Scope) -> bool:
    _kind, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
    return caller_of(scope["app"].state.callers, token.strip()) is not None


async def _whole(receive: Receive) -> bytes:
    """A body; of one that is too long, the beginning that shows it."""
    body, more = bytearray(), True
    while more and len(body) <= MOST_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body)


def _refusal(status: int, said: str) -> JSONResponse:
    return JSONResponse({"error": said, "problems": []}, status)
