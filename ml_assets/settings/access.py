"""The servers' settings: tokens that admit requests, and the places they may use."""

import base64
import binascii
import os
import re
from collections.abc import Mapping

from ml_assets.errors import SettingsError, counted

SERVE_TOKENS = "ML_ASSETS_SERVE_TOKENS"
API_READERS, API_OPERATORS = "ML_ASSETS_API_READERS", "ML_ASSETS_API_OPERATORS"
DATA_MODEL, REGISTER_FROM = "ML_ASSETS_DATA_MODEL", "ML_ASSETS_REGISTER_FROM"
_SHORTEST, _SHORTEST_KEY = 16, 24
WEBHOOK_SECRET = "ML_ASSETS_WEBHOOK_SECRET"


def read_data_model() -> str | None:
    """The SQLAlchemy URL of the database with the data model; None: a file of the state folder.

    It may hold a password.
    """
    return os.environ.get(DATA_MODEL) or None


def read_register_from() -> tuple[str, ...]:
    """The folders and ``s3://bucket/prefix`` below which a model that is registered has to lie.

    Raises:
        SettingsError: one is neither.
    """
    found = tuple(part.rstrip("/") for part in os.environ.get(REGISTER_FROM, "").split())
    for place in found:
        if not re.match(r"/|s3://[^/]+", place):
            raise SettingsError(
                f"{REGISTER_FROM} names {place!r}; expected absolute folders or s3://bucket/prefix,"
                " separated by spaces."
            )
    return found


def secret_bytes(secret: str) -> bytes:
    """The key of a webhook's secret, which is ``whsec_`` and base64, as Standard Webhooks has it.

    Raises:
        SettingsError: it is something else, or short enough to be guessed.
    """
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        key = b""
    if len(key) < _SHORTEST_KEY:
        raise SettingsError(
            f"{WEBHOOK_SECRET} is not base64 of {_SHORTEST_KEY} bytes or more: export"
            f' {WEBHOOK_SECRET}="whsec_$(openssl rand -base64 32)"'
        )
    return key


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


def read_named_tokens(variable: str) -> dict[str, str]:
    """Token -> name of who holds it, of a variable such as ``ada=TOKEN bob=TOKEN``.

    Raises:
        SettingsError: a name or a token cannot be used.
    """
    found: dict[str, str] = {}
    for part in os.environ.get(variable, "").split():
        name, _, token = part.partition("=")
        if not re.fullmatch(r"[\w.@-]{1,64}", name) or not token:
            raise SettingsError(
                f"{variable} has a part that is not NAME=TOKEN; a name has letters, digits, '.',"
                f" '@', '-' and '_': {variable}=\"ada=$(openssl rand -hex 32)\""
            )
        _check(variable, token)
        found[token] = name
    return found


def _check(variable: str, token: str) -> None:
    if len(token) < _SHORTEST or not re.fullmatch(r"[!-~]+", token):
        raise SettingsError(
            f"{variable} holds a token of {counted(len(token), 'character')}; expected {_SHORTEST}"
            " or"
            f' more, of ASCII without spaces: export {variable}="$(openssl rand -hex 32)"'
        )
