"""The S3 client of all users: one client, one table of its refusals, and files below an address.

The endpoint and the credentials are boto3's own: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ... from the
environment, and AWS_REGION. boto3 is loaded when the first client is made.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ml_assets.errors import SettingsError, StorageError, StoreAway, StoreRefuses, install
from ml_assets.store.retries import again

AskedT = TypeVar("AskedT")
ToldT = TypeVar("ToldT")
TRIES = 6
"""Tries of one request; boto3 waits longer after each (20 s at most), in all about a minute."""
PART_BYTES = 16 << 20
"""Larger files go up in parts of this size, each tried again by itself."""
_STREAMS = 4
_CONNECTIONS = 32
_SIDE_BY_SIDE, _AHEAD = 16, 64
_MISSING = {"404", "NoSuchKey"}
_THERE = {"412", "PreconditionFailed"}
_UNDECIDED = {*_THERE, "ConditionalRequestConflict"}
"""It was there and is gone, or another write of it is under way."""
_CONFLICT_SECONDS = 0.2
"""To wait at first until that is decided."""
_ADDRESS = "Create it, or correct the address (ML_ASSETS_OBJECTS or ML_ASSETS_CHECKPOINTS)."
# what S3 answers -> what it means, and what to do; asking again would change none of it
CREDENTIAL_REFUSALS = {
    "InvalidAccessKeyId": ("the access key is unknown", "Set AWS_ACCESS_KEY_ID to one that is."),
    "SignatureDoesNotMatch": ("the secret key is wrong", "Set AWS_SECRET_ACCESS_KEY again."),
    "ExpiredToken": ("the credentials have expired", "Renew them (AWS_SESSION_TOKEN)."),
}
NO_CREDENTIALS = (
    "no credentials were found. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment."
)
_REFUSALS = CREDENTIAL_REFUSALS | {
    "NoSuchBucket": ("there is no such bucket", _ADDRESS),
    "AccessDenied": ("access is denied", "Allow these credentials to list, read, write, delete."),
    "403": ("access is denied", "Allow these credentials to list, read, write and delete there."),
    "NotImplemented": ("it lacks conditional writes", "Use a store that has If-None-Match."),
}
_ABOUT = {
    "ValueError": "AWS_ENDPOINT_URL: it has to begin with http:// or https://",
    "InvalidRegionError": "AWS_REGION, or AWS_DEFAULT_REGION",
    "PartialCredentialsError": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: set both, or neither",
    "ProfileNotFound": "AWS_PROFILE",
}
"""What boto3 raises of a setting before it asks anybody -> which one is wrong."""
UP_AND_WHERE = "See that it is up and that AWS_ENDPOINT_URL (unset: AWS itself) leads there."


@dataclass(frozen=True)
class Item:
    """An object below an address."""

    name: str
    """Relative to the address."""
    size: int
    changed: datetime
    """To the second."""
    tag: str
    """Another content has another one."""


@dataclass
class Moved:
    """Bytes that went to a store and came from it, from whichever thread."""

    bytes: int = 0
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, count: int) -> None:
        with self._one_at_a_time:
            self.bytes += count


class S3Place:
    """Holds what lies below ``s3://bucket/prefix``, named relative to it.

    Every method raises ``StoreAway`` where the store does not answer, and ``StoreRefuses`` (which
    is one) where it does and asking again would change nothing.

    Args:
        s3: a client to share; None: one of its own.
        moved: counts what goes through; None: a count of its own.

    Raises:
        SettingsError: boto3 is not installed, or the address names no bucket.
    """

    def __init__(self, uri: str, s3: Any = None, moved: Moved | None = None) -> None:
        self.uri = uri.rstrip("/")
        self.moved = moved or Moved()
        self._bucket, self._prefix = bucket_and_prefix(self.uri)
        self._s3 = s3 or client()

    def at(self, *parts: str) -> "S3Place":
        """The place below this one, by the same client."""
        return S3Place("/".join([self.uri, *parts]), self._s3, self.moved)

    def elsewhere(self, uri: str) -> "S3Place":
        """The same client at another address."""
        return S3Place(uri, self._s3, self.moved)

    def read(self, name: str) -> bytes | None:
        """Content; None where there is none, or where it is not what was put."""
        from botocore.exceptions import FlexibleChecksumError

        def get(at: Mapping[str, str]) -> bytes | None:
            try:
                return self._s3.get_object(**at)["Body"].read()
            except FlexibleChecksumError:
                return None

        data = self._asked(get, name)
        self.moved.add(len(data or b""))
        return data

    def read_range(self, name: str, first: int, count: int) -> bytes:
        """Read so many bytes of an object, from one on.

        Raises:
            StorageError: there is none.
        """
        span = f"bytes={first}-{first + count - 1}"
        data = self._asked(lambda at: self._s3.get_object(**at, Range=span)["Body"].read(), name)
        if data is None:
            raise self._lost(name)
        self.moved.add(len(data))
        return data

    def size(self, name: str) -> int | None:
        """Bytes; None where there is none."""
        return self._asked(lambda at: self._s3.head_object(**at)["ContentLength"], name)

    def write(self, name: str, data: bytes) -> None:
        """Whole at once, in the place of what was there."""
        with s3_errors(self.uri):
            self._s3.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=data)
        self.moved.add(len(data))

    def write_new(self, name: str, data: bytes) -> bool:
        """Whole at once, unless there is one; False: there is another one, which stays.

        A request whose answer was lost is tried again: what then lies there is our own. One that
        meets another write of the same name, which may be that lost one, is asked again:
        https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
        """
        from botocore.exceptions import ClientError

        def put() -> bool:
            try:
                self._s3.put_object(
                    Bucket=self._bucket, Key=self._prefix + name, Body=data, IfNoneMatch="*"
                )
            except ClientError as error:
                if code_of(error) in _THERE and (there := self.read(name)) is not None:
                    return there == data
                raise
            self.moved.add(len(data))
            return True

        def passes(error: BaseException) -> bool:
            return isinstance(error, ClientError) and code_of(error) in _UNDECIDED

        with s3_errors(self.uri):
            return again(put, passes=passes, tries=TRIES, first=_CONFLICT_SECONDS)

    def upload(self, name: str, file: Path) -> None:
        """A file of this machine, in parts where it is large."""
        with s3_errors(self.uri):
            self._s3.upload_file(
                str(file), self._bucket, self._prefix + name, Config=transfer_config()
            )
        self.moved.add(file.stat().st_size)

    def download(self, name: str, file: Path) -> None:
        """Into a file of this machine.

        Raises:
            StorageError: there is none.
        """

        def download(at: Mapping[str, str]) -> Path:
            self._s3.download_file(**at, Filename=str(file), Config=transfer_config())
            return file

        if self._asked(download, name) is None:
            raise self._lost(name)
        self.moved.add(file.stat().st_size)

    def items(self, begin: str = "", after: str = "") -> Iterator[Item]:
        """Yield what begins with these letters, by name.

        Args:
            after: only names behind this one.
        """
        more = {"StartAfter": self._prefix + after} if after else {}
        with s3_errors(self.uri):
            for found in objects_below(self._s3, self._bucket, self._prefix + begin, **more):
                name = found["Key"].removeprefix(self._prefix)
                yield Item(name, found["Size"], found["LastModified"], found["ETag"])

    def folders(self, begin: str = "") -> list[str]:
        """Names up to the next ``/``, of what begins with these letters."""
        with s3_errors(self.uri):
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + begin, Delimiter="/"
            )
            found = [p["Prefix"] for page in pages for p in page.get("CommonPrefixes", ())]
        return [key.removesuffix("/").rpartition("/")[2] for key in found]

    def _asked(self, ask: Callable[[Mapping[str, str]], AskedT], name: str) -> AskedT | None:
        """What the store answers of an object, by its bucket and key; None: it is not there."""
        from botocore.exceptions import ClientError

        with s3_errors(self.uri):
            try:
                return ask({"Bucket": self._bucket, "Key": self._prefix + name})
            except ClientError as error:
                if code_of(error) in _MISSING:
                    return None
                raise

    def _lost(self, name: str) -> StorageError:
        return StorageError(f"{self.uri}/{name} is lost: it is not there.")

    def discard(self, name: str) -> None:
        """Delete one; nothing where there is none."""
        with s3_errors(self.uri):
            self._s3.delete_object(Bucket=self._bucket, Key=self._prefix + name)

    def discard_below(self, begin: str = "", first: Sequence[str] = ()) -> None:
        """Delete all that begins with these letters, uploads that never ended included.

        Args:
            first: ends of names that go before the others: manifests, so that what is half deleted
                is not whole.
        """
        prefix = self._prefix + begin
        with s3_errors(self.uri):
            keys = [found["Key"] for found in objects_below(self._s3, self._bucket, prefix)]
            # one by one: the message for many needs a checksum that some stores lack
            for key in sorted(keys, key=lambda key: not key.endswith(tuple(first))):
                self._s3.delete_object(Bucket=self._bucket, Key=key)
            uploads = self._s3.list_multipart_uploads(Bucket=self._bucket, Prefix=prefix)
            for upload in uploads.get("Uploads", ()):
                self._s3.abort_multipart_upload(
                    Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                )


def bucket_and_prefix(uri: str) -> tuple[str, str]:
    """``s3://bucket/a/b`` -> (bucket, ``a/b/``)."""
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise SettingsError(f"{uri!r} names no bucket; expected s3://bucket/prefix.")
    inner = parts.path.strip("/")
    return parts.netloc, f"{inner}/" if inner else ""


def client(tries: int | None = None, timeout: float = 60.0) -> Any:
    """A client that tries again, longer and longer, and then gives up.

    Args:
        tries: of one request; None: ``TRIES``.
        timeout: seconds without a byte of an answer.

    Raises:
        SettingsError: boto3 is not installed, or cannot use what the environment says.
    """
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise SettingsError(
            "An address on S3 is to be used (ML_ASSETS_OBJECTS, ML_ASSETS_CHECKPOINTS), and boto3"
            f" is not installed here. Remedy: {install('s3')}; or unset it."
        ) from error
    retries: Any = {"mode": "standard", "total_max_attempts": tries or TRIES}
    config = Config(
        connect_timeout=min(10.0, timeout),
        read_timeout=timeout,
        retries=retries,
        max_pool_connections=_CONNECTIONS,
    )
    try:
        session = boto3.Session()  # the shared one keeps the credentials of its first use
        # boto3 itself reads AWS_DEFAULT_REGION alone
        region = os.environ.get("AWS_REGION") or session.region_name or "us-east-1"
        return session.client("s3", region_name=region, config=config)
    except (BotoCoreError, ValueError) as error:
        about = _ABOUT.get(type(error).__name__, "AWS_ENDPOINT_URL or another AWS_ setting")
        said = str(error).rstrip(".")
        raise SettingsError(f"S3 cannot be used: {said}. Correct {about}.") from error


def transfer_config() -> Any:
    """Large files in parts, a few at a time."""
    from boto3.s3.transfer import TransferConfig

    return TransferConfig(
        multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=_STREAMS
    )


def side_by_side(ask: Callable[[AskedT], ToldT], each: Sequence[AskedT]) -> Iterator[ToldT]:
    """Yield what a small request comes to for each, in their order: some at a time, and few ahead.

    An error ends it where it would have come, were they asked one after the other.
    """
    pool = ThreadPoolExecutor(_SIDE_BY_SIDE, "s3")
    try:
        for begin in range(0, len(each), _AHEAD):
            yield from pool.map(ask, each[begin : begin + _AHEAD])
    finally:  # who is interrupted does not wait for answers
        pool.shutdown(wait=False, cancel_futures=True)


def objects_below(s3: Any, bucket: str, prefix: str, **more: str) -> Iterator[dict[str, Any]]:
    """Everything that begins with a prefix, as S3 lists it, by key."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, **more)
    for page in pages:
        yield from page.get("Contents", ())


@contextmanager
def s3_errors(uri: str) -> Iterator[None]:
    """Turn what boto3 raises inside the block into an error that says what to do."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        FlexibleChecksumError,
        NoCredentialsError,
    )

    try:
        yield
    except ClientError as error:
        raise _refused(uri, error) from error
    except NoCredentialsError as error:
        raise StoreRefuses(f"{uri} cannot be used: {NO_CREDENTIALS}") from error
    except FlexibleChecksumError as error:
        raise StorageError(f"A file below {uri} is damaged: {error}") from error
    except Boto3Error as error:  # an upload's: what S3 answered is below it
        below = error.__context__ or error.__cause__
        if isinstance(below, ClientError):
            raise _refused(uri, below) from error
        raise StoreAway(f"{uri} cannot be used: {error}. {UP_AND_WHERE}") from error
    except BotoCoreError as error:
        raise StoreAway(f"{uri} does not answer: {error}. {UP_AND_WHERE}") from error


def _refused(uri: str, error: Any) -> StoreAway:
    code = code_of(error)
    if code in _REFUSALS:
        what, remedy = _REFUSALS[code]
        return StoreRefuses(f"{uri} cannot be used: {what} ({error.operation_name}). {remedy}")
    what = f"it answered {code} again and again"
    return StoreAway(f"{uri} cannot be used: {what} ({error.operation_name}). {UP_AND_WHERE}")


def code_of(error: Any) -> str:
    """The error code of S3 for what went wrong."""
    return str(error.response.get("Error", {}).get("Code", "?"))
