"""Tokens that let a request in, by the variable that holds them."""

import os
import re
from collections.abc import Mapping

from ml_assets.errors import SettingsError

SERVE_TOKENS = "ML_ASSETS_SERVE_TOKENS"
_SHORTEST = 16


def read_tokens(variable: str, environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The tokens of a variable, separated by spaces: two while one takes the other's place.

    Raises:
        SettingsError: one is too short to be secret, or is no text of a header.
    """
    env = os.environ if environment is None else environment
    tokens = tuple(env.get(variable, "").split())
    for token in tokens:
        if len(token) < _SHORTEST or not re.fullmatch(r"[!-~]+", token):
            raise SettingsError(
                f"{variable} holds a token of {len(token)} characters; expected {_SHORTEST} or"
                f' more, of ASCII without spaces: export {variable}="$(openssl rand -hex 32)"'
            )
    return tokens
