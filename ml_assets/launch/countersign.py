"""Which results of a session count: those that the launcher which saw it end has signed.

Predictions decide over a release. A folder that only looks like a finished session, whoever put it
there, is no result.
"""

import json
from pathlib import Path

from ml_assets.spec.canonical import canonical_json
from ml_assets.storage.objects import write_whole
from ml_assets.storage.signing import Keys, Signature

_RESULT = "application/vnd.ml_assets.session-result+json"


def countersign(result: Path, keys: Keys) -> None:
    """Vouch for a result that was written under our eyes; nothing where there is none."""
    if not result.is_file():
        return
    signature = keys.sign(_RESULT, result.read_bytes())
    signed = {"key": signature.key, "value": signature.value}
    write_whole(signature_of(result), canonical_json(signed))


def countersigned(result: Path, keys: Keys) -> bytes | None:
    """What a trusted key countersigned; None where none did."""
    try:
        content = result.read_bytes()
        signed = json.loads(signature_of(result).read_bytes())
        signature = Signature(str(signed["key"]), str(signed["value"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return content if keys.vouched(_RESULT, content, signature) else None


def signature_of(result: Path) -> Path:
    """Where the signature of a result lies."""
    return result.with_suffix(".signature.json")
