"""Checkpoints on S3: written on this machine, uploaded, and committed by the manifest's PUT.

The endpoint and the credentials are boto3's own: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ... from the
environment. boto3 is loaded when the first store is opened.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ml_assets.errors import SettingsError, StorageError, StoreAway
from ml_assets.spec.program import File
from ml_assets.storage.checkpoints import (
    CLAIM,
    MANIFEST,
    Lying,
    claim_file,
    claimed_by,
    is_checkpoint,
)
from ml_assets.storage.objects import verify

INSTALL_S3 = (
    "pip install -c requirements.lock -e '.[s3]' in the project's folder, or"
    " pip install 'ml_assets[s3]'"
)
TRIES = 6
"""Of one request; boto3 waits longer after each (seconds, 20 at most) and in all about a minute."""
PART_BYTES = 16 << 20
"""Larger files go up in parts of this size, each tried again by itself."""
_STREAMS = 4
_MISSING = {"404", "NoSuchKey"}
# what S3 answers -> what it means, and what to do
_REFUSALS = {
    "NoSuchBucket": ("there is no such bucket", "Create it, or correct ML_ASSETS_CHECKPOINTS."),
    "AccessDenied": ("access is denied", "Allow these credentials to list, read, write, delete."),
    "403": ("access is denied", "Allow these credentials to list, read, write and delete there."),
    "InvalidAccessKeyId": ("the access key is unknown", "Set AWS_ACCESS_KEY_ID to one that is."),
    "SignatureDoesNotMatch": ("the secret key is wrong", "Set AWS_SECRET_ACCESS_KEY anew."),
    "ExpiredToken": ("the credentials have expired", "Renew them (AWS_SESSION_TOKEN)."),
    "NotImplemented": ("it lacks conditional writes", "Use a store that has If-None-Match."),
}


class S3Checkpoints:
    """The checkpoints of one session below ``s3://bucket/prefix``.

    Args:
        scratch: folder of this machine for what is on its way up or down.

    Raises:
        SettingsError: boto3 is not installed, or the address names no bucket.
    """

    def __init__(self, uri: str, scratch: Path | None) -> None:
        self.uri = uri.rstrip("/")
        self.place = scratch or Path("nowhere")  # who has no scratch writes and fetches nothing
        self._bucket, self._prefix = bucket_and_prefix(self.uri)
        self._s3 = client()

    def names(self) -> tuple[str, ...]:
        with _told(self.uri):
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{self._prefix}step-", Delimiter="/"
            )
            found = [p["Prefix"] for page in pages for p in page.get("CommonPrefixes", ())]
        names = (prefix.removesuffix("/").rpartition("/")[2] for prefix in found)
        return tuple(name for name in names if is_checkpoint(name))

    def sizes(self, name: str) -> dict[str, int]:
        begin = f"{self._prefix}{name}/"
        with _told(self.uri):
            return {o["Key"].removeprefix(begin): o["Size"] for o in self._objects(begin)}

    def read(self, name: str, file: str) -> bytes | None:
        with _told(self.uri):
            return self._get(f"{self._prefix}{name}/{file}")

    def draft(self, name: str) -> Path:
        folder = self.place / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def put(self, name: str, files: Sequence[str]) -> None:
        for file in files:
            with _told(self.uri):
                self._s3.upload_file(
                    str(self.place / name / file),
                    self._bucket,
                    f"{self._prefix}{name}/{file}",
                    Config=_transfer(),
                )

    def collected(self, name: str, files: Sequence[File]) -> Path:
        folder = self.draft(name)
        self._download(name, [file for file in files if not (folder / file.path).is_file()])
        return folder

    def commit(self, name: str, manifest: bytes) -> None:
        with _told(self.uri):
            key = f"{self._prefix}{name}/{MANIFEST}"
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=manifest)

    def fetch(self, name: str, files: Iterable[File]) -> Path:
        wanted = tuple(files)
        folder = self.draft(name)
        self._download(name, wanted)
        try:
            verify(folder, wanted)
        except StorageError as error:
            self.release(name)
            raise StorageError(f"{self.uri}/{name}: {error}") from error
        return folder

    def release(self, name: str) -> None:
        shutil.rmtree(self.place / name, ignore_errors=True)

    def discard(self, name: str) -> None:
        begin = f"{self._prefix}{name}/"
        with _told(self.uri):
            self._s3.delete_object(Bucket=self._bucket, Key=begin + MANIFEST)
            _delete_below(self._s3, self._bucket, begin)
        self.release(name)

    def claims(self) -> dict[int, bytes]:
        begin = self._prefix + CLAIM
        with _told(self.uri):
            keys = [o["Key"] for o in self._objects(begin)]
            found = {key: self._get(key) for key in keys[-1:]}  # in order: the last is the newest
        return {claimed_by(key.rpartition("/")[2]): data for key, data in found.items() if data}

    def claim(self, attempt: int, record: bytes) -> None:
        from botocore.exceptions import ClientError

        with _told(self.uri):
            try:
                self._s3.put_object(
                    Bucket=self._bucket,
                    Key=f"{self._prefix}{claim_file(attempt)}",
                    Body=record,
                    IfNoneMatch="*",
                )
            except ClientError as error:
                if _code(error) not in ("PreconditionFailed", "412"):  # it is claimed already
                    raise

    def _objects(self, begin: str) -> Iterator[dict[str, Any]]:
        return _objects_below(self._s3, self._bucket, begin)

    def _get(self, key: str) -> bytes | None:
        """None where there is none, or where it is not what was put."""
        from botocore.exceptions import ClientError, FlexibleChecksumError

        try:
            return self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        except FlexibleChecksumError:
            return None
        except ClientError as error:
            if _code(error) in _MISSING:
                return None
            raise

    def _download(self, name: str, files: Iterable[File]) -> None:
        from botocore.exceptions import ClientError

        folder = self.draft(name)
        for file in files:
            key, target = f"{self._prefix}{name}/{file.path}", folder / file.path
            with _told(self.uri):
                try:
                    self._s3.download_file(self._bucket, key, str(target), Config=_transfer())
                except ClientError as error:
                    if _code(error) not in _MISSING:
                        raise
                    message = f"{self.uri}/{name}/{file.path} is lost: its manifest names it."
                    raise StorageError(message) from error


def lying_below(uri: str) -> Lying | None:
    """What lies below an address."""
    bucket, prefix = bucket_and_prefix(uri)
    with _told(uri):
        found = list(_objects_below(client(), bucket, prefix))
    if not found:
        return None
    changed = max(item["LastModified"] for item in found)
    return Lying(len(found), sum(item["Size"] for item in found), changed)


def discard_below(uri: str) -> None:
    """All that lies below an address, manifests first, uploads that never ended included."""
    bucket, prefix = bucket_and_prefix(uri)
    with _told(uri):
        s3 = client()
        keys = [item["Key"] for item in _objects_below(s3, bucket, prefix)]
        _delete(s3, bucket, [key for key in keys if key.endswith(f"/{MANIFEST}")])
        _delete_below(s3, bucket, prefix)


def _delete_below(s3: Any, bucket: str, prefix: str) -> None:
    _delete(s3, bucket, [item["Key"] for item in _objects_below(s3, bucket, prefix)])
    uploads = s3.list_multipart_uploads(Bucket=bucket, Prefix=prefix).get("Uploads", ())
    for upload in uploads:
        s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])


def _delete(s3: Any, bucket: str, keys: Sequence[str]) -> None:
    for key in keys:  # one by one: the message for many needs a checksum that some stores lack
        s3.delete_object(Bucket=bucket, Key=key)


def _objects_below(s3: Any, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        yield from page.get("Contents", ())


def bucket_and_prefix(uri: str) -> tuple[str, str]:
    """``s3://bucket/a/b`` -> (bucket, ``a/b/``)."""
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise SettingsError(f"{uri!r} names no bucket; expected s3://bucket/prefix.")
    inner = parts.path.strip("/")
    return parts.netloc, f"{inner}/" if inner else ""


def client() -> Any:
    """A client that tries again, longer and longer, and then gives up.

    Raises:
        SettingsError: boto3 is not installed.
    """
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise SettingsError(
            "ML_ASSETS_CHECKPOINTS is an address on S3, and boto3 is not installed here."
            f" Remedy: {INSTALL_S3}; or unset it."
        ) from error
    retries: Any = {"mode": "standard", "total_max_attempts": TRIES}
    config = Config(connect_timeout=10, read_timeout=60, retries=retries)
    session = boto3.Session()  # the shared one keeps the credentials of its first use
    return session.client("s3", region_name=session.region_name or "us-east-1", config=config)


def _transfer() -> Any:
    from boto3.s3.transfer import TransferConfig

    return TransferConfig(
        multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=_STREAMS
    )


@contextmanager
def _told(uri: str) -> Iterator[None]:
    """What boto3 raises becomes what is wrong, where, and what to do."""
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
        raise StoreAway(
            f"{uri} cannot be used: no credentials were found. Set AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY in the environment."
        ) from error
    except FlexibleChecksumError as error:
        raise StorageError(f"A file below {uri} is damaged: {error}") from error
    except Boto3Error as error:  # an upload's: what S3 answered is below it
        below = error.__context__ or error.__cause__
        if isinstance(below, ClientError):
            raise _refused(uri, below) from error
        raise StoreAway(f"{uri} cannot be used: {error}. {_WHERE}") from error
    except BotoCoreError as error:
        raise StoreAway(f"{uri} does not answer: {error}. {_WHERE}") from error


_WHERE = "See that it is up and that AWS_ENDPOINT_URL (unset: AWS itself) leads there."


def _refused(uri: str, error: Any) -> StoreAway:
    code = _code(error)
    what, remedy = _REFUSALS.get(code, (f"it answered {code} after {TRIES} tries", _WHERE))
    return StoreAway(f"{uri} cannot be used: {what} ({error.operation_name}). {remedy}")


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", "?"))
