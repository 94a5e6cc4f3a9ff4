"""Tokens that let a request in, by the variable that holds them; and where views in SQL lie."""

import os
import re
from collections.abc import Mapping

from ml_assets.errors import SettingsError

SERVE_TOKENS = "ML_ASSETS_SERVE_TOKENS"
API_READERS, API_OPERATORS = "ML_ASSETS_API_READERS", "ML_ASSETS_API_OPERATORS"
DATA_MODEL = "ML_ASSETS_DATA_MODEL"
_SHORTEST = 16


def read_data_model(environment: Mapping[str, str] | None = None) -> str | None:
    """The SQLAlchemy URL of the database with the data model; None: a file of the state folder.

    It may hold a password.
    """
    env = os.environ if environment is None else environment
    return env.get(DATA_MODEL) or None


def read_tokens(variable: str, environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The tokens of a variable, separated by spaces: two while one takes the other's place.

    Raises:
        SettingsError: one is too short to be secret, or is no text of a header.
    """
    env = os.environ if environment is None else environment
    tokens = tuple(env.get(variable, "").split())
    for token in tokens:
        _check(variable, token)
    return tokens


def read_named_tokens(
    variable: str, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Token -> name of who holds it, of a variable such as ``ada=TOKEN bob=TOKEN``.

    Raises:
        SettingsError: a name or a token cannot be used.
    """
    env = os.environ if environment is None else environment
    found: dict[str, str] = {}
    for part in env.get(variable, "").split():
        name, _, token = part.partition("=")
        if not re.fullmatch(r"[\w.@-]{1,64}", name) or not token:
            raise SettingsError(
                f"{variable} has a part that is no NAME=TOKEN; a name has letters, digits, '.',"
                f" '@', '-' and '_': {variable}=\"ada=$(openssl rand -hex 32)\""
            )
        _check(variable, token)
        found[token] = name
    return found


def _check(variable: str, token: str) -> None:
    if len(token) < _SHORTEST or not re.fullmatch(r"[!-~]+", token):
        raise SettingsError(
            f"{variable} holds a token of {len(token)} characters; expected {_SHORTEST} or"
            f' more, of ASCII without spaces: export {variable}="$(openssl rand -hex 32)"'
        )
