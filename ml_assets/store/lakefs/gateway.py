"""The S3 side of a lakeFS server: ``s3://<repository>/<ref>/<path>``, to scan and to upload."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ml_assets.errors import SettingsError, StoreAway, install, one_line
from ml_assets.settings import LakeFs, read_lakefs
from ml_assets.store.lakefs.calls import TIMEOUT, TRIES

_REGION = "us-east-1"
_PART_BYTES = 16 << 20
"""Larger files go up in parts of this size, two at a time: what an upload takes of the memory."""
# what it answers -> what it means, and what to do
_REFUSALS = {
    "InvalidAccessKeyId": ("it does not know these keys", "Set LAKEFS_ACCESS_KEY_ID."),
    "SignatureDoesNotMatch": ("the secret key is wrong", "Set LAKEFS_SECRET_ACCESS_KEY."),
    "AccessDenied": (
        "access is denied",
        "Widen the policy of these keys.",
    ),
    "NoSuchBucket": ("there is no such repository", "Correct ML_ASSETS_SNAPSHOTS."),
}
_WHERE = "See that it is up and that LAKEFS_S3_ENDPOINT (default: LAKEFS_ENDPOINT) leads there."
_NOT_SCANNED = re.compile(
    r"object-store error: .*Error performing \w+ (?P<where>https?://[^/\s]+).* - (?P<why>[^\n(]+)"
    r"(?:[\s\S]*?\(path: (?P<file>s3://[^\s)]+))?"
)
"""What polars says when it has asked again and again."""
_WHERE_ELSE = (
    "It is not the server of ML_ASSETS_SNAPSHOTS: see that it is up, and that the address and the"
    " keys that the scan was given (its storage_options, or AWS_ENDPOINT_URL and its like) are"
    " right."
)


def scan_away(error: BaseException) -> StoreAway | None:
    """Return what an object store that is away means for a scan of polars, looked for along the
    causes of an error; None: it is something else.

    Tables of ours are scanned through lakeFS's gateway; a team's function may scan anything.
    """
    cause: BaseException | None = error
    while cause is not None:
        if found := _NOT_SCANNED.search(str(cause)):
            ours = _is_gateway(found["where"])
            whose = "S3 gateway of lakeFS" if ours else "object store"
            return StoreAway(
                f"The {whose} at {found['where']} did not give {found['file'] or 'a table'}:"
                f" {one_line(found['why'])}. {_WHERE if ours else _WHERE_ELSE}"
            )
        cause = cause.__cause__
    return None


def _is_gateway(where: str) -> bool:
    """Whether scheme, host and port are those of the lakeFS server that is set; there may be
    none."""
    with suppress(SettingsError):
        endpoint = urlsplit(read_lakefs().s3_endpoint)
        return where == f"{endpoint.scheme}://{endpoint.netloc}"
    return False


class S3Gateway:
    """One repository."""

    def __init__(self, server: LakeFs, repository: str) -> None:
        self._server = server
        self._repository = repository

    def address(self, ref: str, path: str) -> str:
        return f"s3://{self._repository}/{ref}/{path}"

    @property
    def options(self) -> dict[str, str]:
        """Return what polars needs to read there; holds the secret key."""
        return {
            "aws_endpoint_url": self._server.s3_endpoint,
            "aws_access_key_id": self._server.access_key,
            "aws_secret_access_key": self._server.secret_key,
            "aws_region": _REGION,
            "aws_allow_http": str(self._server.s3_endpoint.startswith("http:")).lower(),
            "aws_virtual_hosted_style_request": "false",
        }

    def upload(self, branch: str, path: str, file: Path) -> None:
        """Stream a file onto a branch.

        Raises:
            StoreAway: it refuses us, or does not answer.
        """
        from boto3.s3.transfer import TransferConfig

        parts = TransferConfig(
            multipart_threshold=_PART_BYTES, multipart_chunksize=_PART_BYTES, max_concurrency=2
        )
        with self._told(path):
            self._s3.upload_file(str(file), self._repository, f"{branch}/{path}", Config=parts)

    @cached_property
    def _s3(self) -> Any:
        try:
            import boto3
            from botocore.config import Config
        except ImportError as error:
            raise SettingsError(
                "The lakeFS server gives no addresses to upload to, and boto3, which uploads"
                f" through its S3 gateway, is not installed here. Remedy: {install('lakefs')}."
            ) from error
        retries: Any = {"mode": "standard", "total_max_attempts": TRIES}
        config = Config(
            connect_timeout=TIMEOUT[0],
            read_timeout=TIMEOUT[1],
            retries=retries,
            s3={"addressing_style": "path"},
            # older servers know no checksums in a trailer
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        return boto3.Session().client(
            "s3",
            endpoint_url=self._server.s3_endpoint,
            aws_access_key_id=self._server.access_key,
            aws_secret_access_key=self._server.secret_key,
            region_name=_REGION,
            config=config,
        )

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (Boto3Error, ClientError, BotoCoreError) as error:
            answered = error if isinstance(error, ClientError) else error.__context__
            code = ""
            if isinstance(answered, ClientError):
                code = str(answered.response.get("Error", {}).get("Code", "?"))
            failed = f"it answered {code}" if code else f"no answer ({type(error).__name__})"
            what, remedy = _REFUSALS.get(code, (f"{failed}, {TRIES} times", _WHERE))
            raise StoreAway(
                f"The S3 gateway of lakeFS at {self._server.s3_endpoint} did not take {path}:"
                f" {what}. {remedy}"
            ) from error
