"""Who vouches for a state: ed25519 signatures (RFC 8032) and the keys they are checked with.

What is signed is DSSE's pre-authentication encoding (https://github.com/secure-systems-lab/dsse):
the type of the content stands before it, so that a signature of one kind is none of another.
"""

import base64
import binascii
import contextlib
import hashlib
import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ml_assets.errors import SettingsError
from ml_assets.storage.objects import write_whole

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_KEY_BYTES = 32


@dataclass(frozen=True)
class Signature:
    """A signature and the public key that it is of, both base64."""

    key: str
    value: str


@dataclass(frozen=True)
class Keys:
    """The key to sign with and the public ones that count, by their base64."""

    private: "Ed25519PrivateKey"
    trusted: frozenset[str]
    made_here: bool = False
    """Nobody gave the private key: it was made beside what it signs."""

    @classmethod
    def of(cls, secret: str | None, trusted: Iterable[str], local: Path) -> "Keys":
        """The key from the environment, else a local one made at first use.

        A local key lies beside what it signs: it proves that nothing was changed by accident or by
        somebody who cannot read it, and not who wrote it.

        Args:
            secret: base64 of the 32 secret bytes.
            trusted: base64 of public keys that count besides our own.
            local: file of the local key.

        Raises:
            SettingsError: the secret is no key.
        """
        private = _from_secret(secret) if secret else _local(local)
        return cls(private, frozenset({_public(private), *trusted}), made_here=not secret)

    @property
    def public(self) -> str:
        """Base64 of our own public key."""
        return _public(self.private)

    def sign(self, kind: str, content: bytes) -> Signature:
        """Sign content of a kind."""
        return Signature(self.public, _text(self.private.sign(_encoded(kind, content))))

    def vouched(self, kind: str, content: bytes, signature: Signature) -> bool:
        """Whether a trusted key signed exactly this content, as this kind."""
        return signature.key in self.trusted and is_of_its_key(kind, content, signature)


def is_of_its_key(kind: str, content: bytes, signature: Signature) -> bool:
    """Whether the key that a signature names made it; whether that key counts is not asked."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(_bytes(signature.key))
        key.verify(_bytes(signature.value), _encoded(kind, content))
    except (InvalidSignature, ValueError):
        return False
    return True


def key_name(public: str) -> str:
    """What a person calls a public key: the beginning of its SHA-256."""
    return hashlib.sha256(public.encode()).hexdigest()[:12]


def public_key(text: str, where: str) -> str:
    """A public key as somebody wrote it down, checked.

    Raises:
        SettingsError: it is none.
    """
    return _text(_checked(text, where, "a public key"))


def _from_secret(secret: str) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    raw = _checked(secret, "ML_ASSETS_SIGNING_KEY", "a secret key")
    return Ed25519PrivateKey.from_private_bytes(raw)


def _local(file: Path) -> "Ed25519PrivateKey":
    """The key in the file, made where it is missing; its public key lies beside it."""
    if not file.is_file():
        _make(file)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    found = file.read_bytes()
    if len(found) != _KEY_BYTES:
        raise SettingsError(
            f"The local key {file} has {len(found)} bytes; {_KEY_BYTES} are expected. Put it back"
            " from a backup. Without it, what it signed counts only where ML_ASSETS_TRUSTED_KEYS"
            " names its public key."
        )
    private = Ed25519PrivateKey.from_private_bytes(found)
    beside = file.with_suffix(".pub")
    if not beside.is_file() and os.access(file.parent, os.W_OK):
        write_whole(beside, f"{_public(private)}\n".encode())
    return private


def _make(file: Path) -> None:
    """Of several processes that make a key at once, one does. Only its owner can read it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:
        handle.write(os.urandom(_KEY_BYTES))
        handle.flush()
        os.fsync(handle.fileno())
    with contextlib.suppress(FileExistsError):  # somebody was first
        os.link(draft, file)
    draft.unlink()


def _public(private: "Ed25519PrivateKey") -> str:
    return _text(private.public_key().public_bytes_raw())


def _checked(text: str, where: str, what: str) -> bytes:
    try:
        raw = _bytes(text)
    except ValueError:
        raw = b""
    if len(raw) != _KEY_BYTES:  # what was found is not shown: it may be a secret
        raise SettingsError(
            f"{where} holds no key: base64 of the {_KEY_BYTES} bytes of {what} is expected."
        )
    return raw


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _encoded(kind: str, content: bytes) -> bytes:
    """DSSE's PAE: ``DSSEv1 SP len(kind) SP kind SP len(content) SP content``."""
    name = kind.encode()
    return b"DSSEv1 %d %s %d %s" % (len(name), name, len(content), content)
