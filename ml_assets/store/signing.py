"""Signs and verifies states: ed25519 signatures (RFC 8032) and their keys.

What is signed is DSSE's pre-authentication encoding (https://github.com/secure-systems-lab/dsse):
it begins with the type of the content, so a signature of one kind is none of another.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ml_assets.errors import SettingsError

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
    """The key to sign with and the public ones that count, by their base64, as they were given.

    Without any nothing is signed: then content counts by its digest, and says not who wrote it.
    What somebody signed is not read without a key that counts: a store is signed as a whole, or
    not at all.
    """

    private: "Ed25519PrivateKey | None" = None
    trusted: frozenset[str] = frozenset()
    store: str = ""
    """The name of the store whose states are signed: those of another name do not count."""

    @classmethod
    def of(cls, secret: str | None, trusted: Iterable[str] = (), store: str = "") -> "Keys":
        """The key from the environment, and others that count.

        Args:
            secret: base64 of the 32 secret bytes.
            trusted: base64 of public keys that count besides our own.
            store: a name that is signed with each state.

        Raises:
            SettingsError: the secret is no key.
        """
        private = _from_secret(secret) if secret else None
        own = {_public(private)} if private else set[str]()
        return cls(private, frozenset({*own, *trusted}), store)

    @property
    def public(self) -> str:
        """Base64 of our own public key; empty where no key is set."""
        return _public(self.private) if self.private else ""

    def of_store(self, kind: str) -> str:
        """A kind of content that counts in the store of this name alone."""
        return f"{kind}; store={self.store}" if self.store else kind

    def sign(self, kind: str, content: bytes) -> Signature | None:
        """Sign content of a kind; None where no key is set.

        Raises:
            SettingsError: keys are trusted here, and this process has none of its own.
        """
        if self.private:
            return Signature(
                _public(self.private), _text(self.private.sign(_encoded(kind, content)))
            )
        if self.trusted:
            raise SettingsError(
                "ML_ASSETS_TRUSTED_KEYS lists the trusted keys, but ML_ASSETS_SIGNING_KEY is not "
                "set: what this process writes, an export too, nobody could verify. Set the key, "
                "or write from a process that has it."
            )
        return None

    def refusal(self, kind: str, content: bytes, signature: Signature | None) -> str:
        """Return who signed content that does not count, after "which"; empty where it counts."""
        if signature is None:
            return "nobody signed" if self.trusted else ""
        if signature.key in self.trusted and is_of_its_key(kind, content, signature):
            return ""
        named = f"key {key_name(signature.key)} ({signature.key})"
        if not self.trusted:
            return f"{named} signed, and no key is set here to verify it with"
        why = "signed something else" if signature.key in self.trusted else "is not trusted here"
        return f"names {named} as its signer: that key {why}"


def is_of_its_key(kind: str, content: bytes, signature: Signature) -> bool:
    """Return whether the key that a signature names made it; whether it counts is not asked."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(_bytes(signature.key))
        key.verify(value := _bytes(signature.value), _encoded(kind, content))
    except (InvalidSignature, ValueError):
        return False
    return _text(value) == signature.value  # base64 has bits that say nothing


def key_name(public: str) -> str:
    """Return what a person calls a public key: the beginning of its SHA-256."""
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


def _public(private: "Ed25519PrivateKey") -> str:
    return _text(private.public_key().public_bytes_raw())


def _checked(text: str, where: str, what: str) -> bytes:
    try:
        raw = _bytes(text.strip())  # a mounted secret often ends with a line break
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
