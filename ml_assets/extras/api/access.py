"""Who calls the API: a name by its token, and whether that name may change something."""

from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Annotated

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer


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
    """Whoever has a token; to look takes the same time for each."""
    callers: Mapping[str, Caller] = request.app.state.callers
    asked = given.credentials.encode() if given else b""
    found = [one for token, one in callers.items() if compare_digest(asked, token.encode())]
    if not found:
        said = "A token is needed: send the header Authorization: Bearer TOKEN."
        raise HTTPException(401, said, {"WWW-Authenticate": "Bearer"})
    return found[0]


def operator(caller: Annotated[Caller, Depends(reader)]) -> Caller:
    """Whoever has the token of an operator."""
    if not caller.operator:
        raise HTTPException(
            403, f"{caller.name} may only read: this takes the token of an operator."
        )
    return caller


Reader = Annotated[Caller, Depends(reader)]
Operator = Annotated[Caller, Depends(operator)]
