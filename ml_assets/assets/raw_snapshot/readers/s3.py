"""Sources on S3: objects are listed by their prefix and read as they were listed.

The endpoint and the credentials are boto3's own: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ... from the
environment. boto3 is loaded when the first bucket is opened.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from ml_assets.assets.raw_snapshot.readers.listing import ListedFile, RefusedName, odd_key
from ml_assets.assets.raw_snapshot.readers.pattern import ANY_DEPTH, Pattern
from ml_assets.errors import MlAssetsError, SettingsError, SourceError, install
from ml_assets.settings.addresses import without_secrets
from ml_assets.store.s3.client import (
    CREDENTIAL_REFUSALS,
    NO_CREDENTIALS,
    UP_AND_WHERE,
    client,
    code_of,
    side_by_side,
)

CHUNK = 1 << 20
_FOLDERS = 16
"""Folders in a page of a thousand objects, up to which each is listed by itself: with more of them
these would be too many requests."""
_LEADING = (
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"),
    *("AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"),
)
"""Variables that choose the server."""
# what S3 answers -> what it means, and what to do
_REFUSALS = CREDENTIAL_REFUSALS | {
    "NoSuchBucket": ("there is no such bucket", "Correct 'path' of this source in defs.yaml."),
    "NoSuchKey": ("it was removed meanwhile", "Deliver it again."),
    "PreconditionFailed": ("it was replaced meanwhile", "Try again."),
    "AccessDenied": ("access is denied", "Allow these credentials to list and read there."),
    "403": ("access is denied", "Allow these credentials to list and read there."),
}


@dataclass(frozen=True)
class Bucket:
    """A bucket, read only."""

    name: str
    """The name of the source; messages begin with it."""
    bucket: str

    def list(self, pattern: Pattern) -> Iterator[ListedFile | RefusedName]:
        """The objects that a pattern stands for, in the order of their keys."""
        with self._told(pattern.path):
            for item in self._items(pattern):
                is_folder = item["Key"].endswith("/")  # as consoles draw one: it holds nothing
                if not is_folder and pattern.fields(item["Key"]) is not None:
                    yield self._found(item)

    def chunks(self, found: ListedFile) -> Iterator[bytes]:
        with self._told(self.title(found.path)):
            answer = self._s3.get_object(
                Bucket=self.bucket, Key=found.path, IfMatch=f'"{found.etag}"'
            )
            yield from answer["Body"].iter_chunks(CHUNK)

    def title(self, path: str) -> str:
        return f"s3://{self.bucket}/{path}"

    def _items(self, pattern: Pattern) -> Iterator[dict[str, Any]]:
        """What begins as the pattern does; large folders are begun side by side."""
        prefix = pattern.prefix
        page = self._page(prefix)
        deeper = pattern.below.removeprefix(prefix)
        seen = {item["Key"][len(prefix) :].partition("/")[0] for item in page.get("Contents", ())}
        by_folder = page["IsTruncated"] and "/" in deeper and ANY_DEPTH not in deeper
        if not by_folder or len(seen) > _FOLDERS:
            yield from self._on(prefix, page)
            return
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=prefix, Delimiter="/"
        )
        folders = [one["Prefix"] for page in pages for one in page.get("CommonPrefixes", ())]
        for folder, first in zip(folders, side_by_side(self._page, folders), strict=True):
            yield from self._on(folder, first)

    def _on(self, prefix: str, page: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The objects of a page, and of those after it."""
        yield from page.get("Contents", ())
        while page["IsTruncated"]:
            page = self._page(prefix, ContinuationToken=page["NextContinuationToken"])
            yield from page.get("Contents", ())

    def _page(self, prefix: str, **after: str) -> dict[str, Any]:
        return self._s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix, **after)

    def _found(self, item: dict[str, Any]) -> ListedFile | RefusedName:
        odd = odd_key(self.name, item["Key"])
        if odd:
            return RefusedName(item["Key"], odd)
        modified = item["LastModified"].timestamp()
        return ListedFile(item["Key"], item["Size"], int(modified * 1e9), item["ETag"].strip('"'))

    @cached_property
    def _s3(self) -> Any:
        try:
            return client()
        except SettingsError as error:
            raise SourceError(
                f"{self.name}: s3://{self.bucket} cannot be read: boto3 is not installed here:"
                f" {install('s3')}"
            ) from error

    @contextmanager
    def _told(self, uri: str) -> Iterator[None]:
        """What boto3 raises becomes what is wrong, where, and what to do."""
        try:
            yield
        except MlAssetsError:
            raise
        except Exception as error:
            raise SourceError(f"{self.name}: {uri} cannot be read: {_said(error)}") from error


def server() -> str:
    """Address and region of the server that buckets are read from, as boto3 finds them: from the
    environment or its own file; without user and password."""
    return _server(tuple(os.environ.get(name) for name in _LEADING))


@cache
def _server(_by: tuple[str | None, ...]) -> str:
    try:
        found = client().meta
    except SettingsError:
        return "no server: boto3 is not installed here"
    return f"{without_secrets(found.endpoint_url)} ({found.region_name})"


def _said(error: Exception) -> str:
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    if isinstance(error, ClientError):
        code = code_of(error)
        what, remedy = _REFUSALS.get(code, (f"it answered {code}", UP_AND_WHERE))
        return f"{what} ({error.operation_name}). {remedy}"
    if isinstance(error, NoCredentialsError):
        return NO_CREDENTIALS
    if isinstance(error, BotoCoreError):
        return f"it does not answer: {error}. {UP_AND_WHERE}"
    raise error
