"""Which results of a session count: with a key, those whose launcher saw them end and signed them.

Predictions decide over a release. A folder that only looks like a finished session, whoever put it
there, is no result. Without a key nobody can tell.
"""

import json
from pathlib import Path

from ml_assets.spec.canonical import canonical_json
from ml_assets.store.objects import write_whole
from ml_assets.store.signing import Keys, Signature

_RESULT = "application/vnd.ml_assets.session-result+json"


def sign_result(result: Path, keys: Keys) -> None:
    """Vouch for a result that was written under our eyes; nothing where there is none."""
    if not result.is_file():
        return
    signature = keys.sign(_RESULT, result.read_bytes())
    if signature is None:
        return
    signed = {"key": signature.key, "value": signature.value}
    write_whole(signature_of(result), canonical_json(signed))


def signed_result(result: Path, keys: Keys) -> bytes | None:
    """A result that counts; None where none does."""
    try:
        content, signature = result.read_bytes(), None
        if signature_of(result).exists():
            signed = json.loads(signature_of(result).read_bytes())
            signature = Signature(str(signed["key"]), str(signed["value"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None if keys.refusal(_RESULT, content, signature) else content


def signature_of(result: Path) -> Path:
    """Where the signature of a result lies."""
    return result.with_suffix(".signature.json")
