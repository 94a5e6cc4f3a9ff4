"""Authenticates callers of the API: a name by its token, and whether it may change something."""

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
    """Whoever has a token."""
    found = caller_of(request.app.state.callers, given.credentials if given else "")
    if found is None:
        said = (
            "No token that counts here: send the header Authorization: Bearer TOKEN, with one of"
            " ML_ASSETS_API_READERS or ML_ASSETS_API_OPERATORS."
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
            403, f"{caller.name} may only read: this takes the token of an operator."
        )
    return caller


Reader = Annotated[Caller, Depends(reader)]
Operator = Annotated[Caller, Depends(operator)]
