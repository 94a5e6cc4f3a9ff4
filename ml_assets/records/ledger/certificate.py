"""Making, opening and comparing certificates: pure functions of bytes, keys and a ledger line.

A certificate lies beside the line that it is about, published in the same commit.
"""

import base64
import binascii
import hashlib
from collections.abc import Collection

from pydantic import ValidationError

from ml_assets.errors import CertificateRefused, StorageError
from ml_assets.spec.base import canonical_json
from ml_assets.spec.certificate import (
    PAYLOAD_TYPE,
    Certificate,
    Envelope,
    EnvelopeSignature,
    LedgerLine,
    Overridden,
    Provenance,
)
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.signing import Keys, Signature, is_of_its_key, key_name

MOST_BYTES = 8 << 20
"""A longer envelope is none of ours."""


def certificate_path(pipeline: str, seq: int) -> str:
    """Return where the certificate of a ledger line lies in the snapshot store."""
    return f"certificates/{pipeline}/{seq:06d}.json"


def seal(
    keys: Keys,
    entry: LedgerEntry,
    line: bytes,
    provenance: Provenance | None,
    *,
    overridden: LedgerEntry | None = None,
) -> bytes:
    """The envelope, signed where a key is set, about the line of a decision, or of an override.

    Args:
        line: the bytes that the ledger stores.
        overridden: the decision's line that an override is set against.
    """
    payload = canonical_json(_about(entry, line, provenance, overridden))
    signature = keys.sign(PAYLOAD_TYPE, payload)
    return canonical_json(
        Envelope(
            payload=base64.b64encode(payload).decode(),
            payloadType=PAYLOAD_TYPE,
            signatures=(EnvelopeSignature(keyid=signature.key, sig=signature.value),)
            if signature
            else (),
        )
    )


def open_envelope(data: bytes, trusted: Collection[str]) -> Certificate:
    """Return what a trusted key signed; where none is trusted, what nobody signed.

    Args:
        trusted: public keys that count, base64.

    Raises:
        CertificateRefused: it cannot be read, or no trusted key signed exactly this.
    """
    envelope = read_envelope(data)
    payload = payload_of(envelope)
    signatures = [Signature(one.keyid, one.sig) for one in envelope.signatures]
    ours = [signature for signature in signatures if signature.key in trusted]
    if trusted and not signatures:
        raise CertificateRefused("The certificate is not signed, and keys are set here.")
    if signatures and not ours:
        named = ", ".join(f"{key_name(s.key)} ({s.key})" for s in signatures)
        raise CertificateRefused(
            f"The certificate is foreign: it is signed by the key {named}, which is not trusted. If"
            " that key is to count, or was the one here before, add it to ML_ASSETS_TRUSTED_KEYS."
        )
    if ours and not any(is_of_its_key(PAYLOAD_TYPE, payload, signature) for signature in ours):
        raise CertificateRefused(
            f"The certificate was altered: the signature of key {key_name(ours[0].key)} is not of"
            " these bytes."
        )
    try:
        return Certificate.model_validate_json(payload)
    except ValidationError as error:
        raise CertificateRefused(f"The certificate cannot be read: {_first(error)}") from error


def read_envelope(data: bytes) -> Envelope:
    """The envelope, before any signature is looked at.

    Raises:
        CertificateRefused: it is none, or about another type of content.
    """
    if len(data) > MOST_BYTES:
        raise CertificateRefused(
            f"The certificate has {len(data):,} bytes, {MOST_BYTES:,} at most are read."
        )
    try:
        envelope = Envelope.model_validate_json(data)
    except ValidationError as error:
        raise CertificateRefused(
            f"The certificate is not a DSSE envelope: {_first(error)}"
        ) from error
    if envelope.payloadType != PAYLOAD_TYPE:
        raise CertificateRefused(
            f"The envelope holds {envelope.payloadType!r}, {PAYLOAD_TYPE!r} is expected."
        )
    return envelope


def payload_of(envelope: Envelope) -> bytes:
    """The stored bytes that are signed.

    Raises:
        CertificateRefused: they are not base64.
    """
    try:
        payload = base64.b64decode(envelope.payload, validate=True)
        if base64.b64encode(payload) != envelope.payload.encode():  # bits that say nothing
            raise ValueError("not as it was written")
    except (binascii.Error, ValueError) as error:
        raise CertificateRefused(
            "The certificate cannot be read: its payload is not base64."
        ) from error
    return payload


def require_about(
    certificate: Certificate,
    entry: LedgerEntry,
    line: bytes,
    overridden: LedgerEntry | None = None,
) -> None:
    """Hold a certificate to the line that it lies beside.

    Args:
        overridden: the decision's line that an override is set against.

    Raises:
        CertificateRefused: it is about another line, or says something else of this one.
    """
    expected = _about(entry, line, certificate.provenance, overridden)
    if certificate == expected:
        return
    was, now = certificate.line, expected.line
    if was != now:
        raise CertificateRefused(
            f"The certificate is about another line of the ledger: line {was.seq}"
            f" ({was.sha256[:12]}) on model {certificate.model[:12]}, not line {now.seq}"
            f" ({now.sha256[:12]}) on model {expected.model[:12]}."
        )
    differ = [
        name
        for name in type(certificate).model_fields
        if getattr(certificate, name) != getattr(expected, name)
    ]
    raise CertificateRefused(
        f"The certificate of ledger line {now.seq} says something else than the line:"
        f" {', '.join(differ)}."
    )


def _about(
    entry: LedgerEntry,
    line: bytes,
    provenance: Provenance | None,
    overridden: LedgerEntry | None,
) -> Certificate:
    decided = overridden or entry
    decision = decided.decision
    if decision is None or (overridden and entry.overrides != overridden.seq):
        said = "only a decision, or an override of one, has a certificate"
        raise StorageError(f"Ledger line {entry.seq} is a {entry.kind}: {said}.")
    evidence = decision.evidence
    return Certificate(
        pipeline=decision.pipeline,
        model=evidence.model,
        report=evidence.report,
        code=evidence.code,
        policy=evidence.policy,
        champion=evidence.champion,
        gates=decision.gates,
        passed=decision.passed,
        reason=decision.reason,
        run=decision.run,
        author=decided.author,
        time=decision.time,
        line=LedgerLine(
            seq=entry.seq, previous=entry.previous, sha256=hashlib.sha256(line).hexdigest()
        ),
        override=_word(entry) if overridden else None,
        provenance=provenance,
    )


def _word(entry: LedgerEntry) -> Overridden:
    return Overridden(
        decision=entry.overrides or 0, author=entry.author, reason=entry.reason, time=entry.time
    )


def _first(error: ValidationError) -> str:
    details = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in details["loc"])
    return f"{where}: {details['msg']}" if where else details["msg"]
