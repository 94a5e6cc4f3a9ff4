"""The one way to write JSON that is hashed: equal content is equal bytes."""

import hashlib
import json

from pydantic import BaseModel


def canonical_json(value: object) -> bytes:
    """A value as JSON with sorted keys and no spaces, in UTF-8; models by their fields' names."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    text = json.dumps(
        plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def digest_of(value: object) -> str:
    """SHA-256 of the canonical JSON, in lower-case hexadecimal."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
