"""What a login hands out in place of the keys: a JSON Web Token, signed with HMAC and SHA-256."""

import base64
import hashlib
import hmac
import json
from typing import Any

LASTS = 7 * 24 * 3600
"""Seconds, lakeFS's default."""

_HEAD = {"alg": "HS256", "typ": "JWT"}


def issue(secret: str, user: str, now: int) -> tuple[str, int]:
    """A token, and when it expires (seconds since 1970)."""
    claims = {"sub": user, "aud": ["login"], "iat": now, "exp": now + LASTS}
    said = f"{_packed(_HEAD)}.{_packed(claims)}"
    return f"{said}.{_signature(secret, said)}", now + LASTS


def is_valid(secret: str, token: str, now: float) -> bool:
    said, _, signature = token.rpartition(".")
    if not said or not hmac.compare_digest(signature.encode(), _signature(secret, said).encode()):
        return False
    claims = said.partition(".")[2]
    expires = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
    return now < expires


def _packed(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _signature(secret: str, said: str) -> str:
    return _base64(hmac.new(secret.encode(), said.encode(), hashlib.sha256).digest())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
