"""Who calls the API: a name by its token, and whether that name may change something."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer


@dataclass(frozen=True)
class Caller:
    """Who holds a token."""

    name: str
    """Written into the ledger and the tags of runs."""
    operator: bool
    """May launch runs and move models; else reads alone."""


@dataclass(frozen=True)
class Tokens:
    """Token -> who holds it."""

    callers: Mapping[str, Caller]

    def caller(self, given: str) -> Caller | None:
        """Who holds a token; takes the same time for each."""
        found = None
        for token, caller in self.callers.items():
            if hmac.compare_digest(given.encode(), token.encode()):
                found = caller
        return found


_bearer = HTTPBearer(auto_error=False, description="A token of ML_ASSETS_API_READERS or _OPERATORS")


def reader(
    request: Request,
    given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Caller:
    """Whoever has a token."""
    tokens: Tokens = request.app.state.tokens
    caller = tokens.caller(given.credentials) if given else None
    if caller is None:
        said = "A token is needed: send the header Authorization: Bearer TOKEN."
        raise HTTPException(401, said, {"WWW-Authenticate": "Bearer"})
    return caller


def operator(caller: Annotated[Caller, Depends(reader)]) -> Caller:
    """Whoever has the token of an operator."""
    if not caller.operator:
        raise HTTPException(403, f"{caller.name} may read. Ask with the token of an operator.")
    return caller


Reader = Annotated[Caller, Depends(reader)]
Operator = Annotated[Caller, Depends(operator)]
