"""The object store below lakeFS: bytes by address, multipart uploads, addresses handed out to link.

lakeFS never changes bytes: each upload gets a new address, and a commit points to addresses.
"""

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from dataclasses import dataclass, field

from ml_assets_tests.servers.lakefs.refusals import Collected, Invalid, Missing

LINK_EXPIRES = 12 * 3600
"""Seconds in which an address that was handed out may be linked."""


@dataclass
class Upload:
    """A multipart upload that is under way."""

    address: str
    path: str
    content_type: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    parts: dict[int, bytes] = field(default_factory=dict)


class ObjectStore:
    """Addresses look like ``<storage namespace>/data/<id>``."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}
        self._uploads: dict[str, Upload] = {}
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()

    def put(self, namespace: str, content: bytes) -> str:
        address = self.new_address(namespace)
        self.put_at(address, content)
        return address

    def put_at(self, address: str, content: bytes) -> None:
        with self._lock:
            self._blobs[address] = content

    def get(self, address: str) -> bytes:
        """
        Raises:
            Collected: nothing lies there (any more).
        """
        with self._lock:
            if address not in self._blobs:
                raise Collected
            return self._blobs[address]

    def delete(self, address: str) -> None:
        with self._lock:
            self._blobs.pop(address, None)

    def addresses(self, namespace: str = "") -> set[str]:
        with self._lock:
            return {address for address in self._blobs if address.startswith(namespace)}

    def new_address(self, namespace: str) -> str:
        return f"{namespace.rstrip('/')}/data/{time.time_ns():020d}{secrets.token_hex(4)}"

    # --- addresses that a client fills itself -----------------------------------------------------

    def handed_out(self, namespace: str, *said: str) -> str:
        """A new address, signed for one repository, branch and path (``said``)."""
        address = self.new_address(namespace)
        return f"{address},{self._signature(address, said)}"

    def check_handed_out(self, address: str, *said: str) -> None:
        """
        Raises:
            Invalid: the address was not handed out for this repository, branch and path, or it is
                too old.
        """
        plain, comma, signature = address.rpartition(",")
        if not comma:
            raise Invalid("address is not signed: link address invalid")
        if not hmac.compare_digest(signature, self._signature(plain, said)):
            raise Invalid("invalid address signature: invalid address")
        made = int(plain.rpartition("/data/")[2][:20])
        if time.time_ns() - made > LINK_EXPIRES * 1_000_000_000:
            raise Invalid("link address expired")

    def _signature(self, address: str, said: tuple[str, ...]) -> str:
        text = json.dumps([*said, address]).encode()
        mac = hmac.new(self._key, text, hashlib.sha256).digest()
        return base64.urlsafe_b64encode(mac).decode().rstrip("=")

    # --- multipart --------------------------------------------------------------------------------

    def begin(self, upload: Upload) -> str:
        name = secrets.token_hex(16)
        with self._lock:
            self._uploads[name] = upload
        return name

    def upload(self, name: str) -> Upload:
        with self._lock:
            if name not in self._uploads:
                raise Missing("upload")
            return self._uploads[name]

    def put_part(self, name: str, number: int, content: bytes) -> str:
        """Stores one part; its checksum comes back."""
        upload = self.upload(name)
        with self._lock:
            upload.parts[number] = content
        return md5(content)

    def complete(self, name: str, parts: list[tuple[int, str]]) -> tuple[str, int]:
        """The whole object's ETag (``<md5 of md5s>-<parts>``) and size.

        Raises:
            Invalid: parts out of order, unknown, or with another checksum than was stored.
        """
        upload = self.upload(name)
        numbers = [number for number, _ in parts]
        if not numbers or numbers != sorted(set(numbers)):
            raise Invalid("InvalidPartOrder: the parts are not in ascending order")
        for number, etag in parts:
            if number not in upload.parts or md5(upload.parts[number]) != etag.strip('"'):
                raise Invalid(f"InvalidPart: part {number}")
        chosen = [upload.parts[number] for number in numbers]
        content = b"".join(chosen)
        self.put_at(upload.address, content)
        with self._lock:
            self._uploads.pop(name, None)
        sums = b"".join(hashlib.md5(part).digest() for part in chosen)
        return f"{md5(sums)}-{len(chosen)}", len(content)

    def abort(self, name: str) -> None:
        with self._lock:
            if self._uploads.pop(name, None) is None:
                raise Missing("upload")

    def uploads(self) -> dict[str, Upload]:
        with self._lock:
            return dict(self._uploads)


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()
