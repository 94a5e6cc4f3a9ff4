"""S3: buckets, and what a bucket lists: its branches, or the objects below ``<reference>/``."""

from collections.abc import Sequence
from dataclasses import dataclass

from ml_assets_tests.servers.lakefs.catalog import Catalog
from ml_assets_tests.servers.lakefs.exchange import Request, Response
from ml_assets_tests.servers.lakefs.listing import LARGEST_PAGE, folded, page
from ml_assets_tests.servers.lakefs.refusals import Missing, Refused
from ml_assets_tests.servers.lakefs.repository import Repository
from ml_assets_tests.servers.lakefs.s3_xml import S3Error, Value, document, timestamp


@dataclass(frozen=True)
class Bucket:
    catalog: Catalog
    repository: Repository


@dataclass(frozen=True)
class _Page:
    """One page of a listing; names carry their reference."""

    contents: Sequence[Value]
    prefixes: Sequence[str]
    more: bool
    last: str


def list_buckets(request: Request, catalog: Catalog) -> Response:
    buckets = [
        {"Name": name, "CreationDate": timestamp(catalog.repositories[name].created)}
        for name in sorted(catalog.repositories)
        if name.startswith(request.one("prefix"))
    ]
    owner: Value = {"ID": catalog.setup.user, "DisplayName": catalog.setup.user}
    return document("ListAllMyBucketsResult", {"Owner": owner, "Buckets": {"Bucket": buckets}})


def list_bucket(request: Request, bucket: Bucket) -> Response:
    if request.has("location"):
        return document("LocationConstraint", "")
    if request.has("versioning"):
        return document("VersioningConfiguration", "")
    if request.has("uploads"):
        return _uploads(request, bucket)
    if request.one("list-type", "1") not in {"1", "2"}:
        raise S3Error("BadRequest")
    second = request.one("list-type") == "2"
    token = request.one("continuation-token")
    after = (token or request.one("start-after")) if second else request.one("marker")
    try:
        amount = int(request.one("max-keys", str(LARGEST_PAGE)))
    except ValueError:
        amount = LARGEST_PAGE
    found = _page(request, bucket, after, amount)
    result: dict[str, Value] = {
        "Name": bucket.repository.name,
        "Prefix": request.one("prefix"),
        "Delimiter": request.one("delimiter"),
        "MaxKeys": amount,
        "KeyCount": len(found.contents) + len(found.prefixes),
        "IsTruncated": found.more,
        "Contents": found.contents,
        "CommonPrefixes": [{"Prefix": prefix} for prefix in found.prefixes],
    }
    if second:
        result |= {"ContinuationToken": token} if token else {}
        result |= {"NextContinuationToken": found.last} if found.more else {}
    else:
        result["Marker"] = after
        if found.more and request.one("delimiter"):
            result["NextMarker"] = found.last
    return document("ListBucketResult", result)


def _page(request: Request, bucket: Bucket, after: str, amount: int) -> _Page:
    reference, slash, prefix = request.one("prefix").lstrip("/").partition("/")
    if not slash:
        return _branches(bucket.repository, reference, after, amount)
    after_reference, _, after_path = after.partition("/")
    if after and after_reference != reference:
        raise S3Error("BadRequest", "invalid marker - doesnt start with branch name")
    try:
        tree = bucket.repository.tree(reference)
    except Missing:
        tree = {}
    except Refused as refused:
        raise S3Error("BadRequest", refused.message) from refused
    items = folded(sorted(tree), prefix, request.one("delimiter"), after_path)
    some, more = page(items, amount)
    contents: list[Value] = [
        {
            "Key": f"{reference}/{path}",
            "LastModified": timestamp(tree[path].modified),
            "ETag": f'"{tree[path].checksum}"',
            "Size": tree[path].size,
            "StorageClass": "STANDARD",
        }
        for path, is_prefix in some
        if not is_prefix
    ]
    prefixes = [f"{reference}/{path}" for path, is_prefix in some if is_prefix]
    return _Page(contents, prefixes, more, f"{reference}/{some[-1][0]}" if some else "")


def _branches(repository: Repository, prefix: str, after: str, amount: int) -> _Page:
    visible = [name for name, branch in list(repository.branches.items()) if not branch.hidden]
    names = [name for name in sorted(visible) if name.startswith(prefix) and name > after]
    some, more = page(names, amount)
    return _Page([], [f"{name}/" for name in some], more, some[-1] if some else "")


def _uploads(request: Request, bucket: Bucket) -> Response:
    """Those under way, in the order of their beginning; the markers of a page begin the next."""
    if any(request.one(name) for name in ("prefix", "delimiter", "encoding-type")):
        raise S3Error("NotImplemented")
    text = request.one("max-uploads", str(LARGEST_PAGE))
    if not text.isdigit():
        words = "Argument max-uploads must be an integer between 0 and 2147483647"
        raise S3Error("InvalidArgument", words)
    amount, namespace = min(int(text), LARGEST_PAGE), bucket.repository.namespace
    found = [
        (name, upload)
        for name, upload in bucket.catalog.store.uploads().items()
        if upload.address.startswith(namespace)
    ]
    marker = request.one("key-marker")
    addresses = [upload.address for _, upload in found]
    if marker:  # without it, that of the upload means nothing, as on S3
        found = found[addresses.index(marker) + 1 :] if marker in addresses else []
    some, more = page(found, amount)
    uploads: list[Value] = [{"Key": upload.path, "UploadId": name} for name, upload in some]
    result: dict[str, Value] = {
        "Bucket": bucket.repository.name,
        "MaxUploads": amount,
        "IsTruncated": more,
        "Upload": uploads,
    }
    if more and some:
        name, upload = some[-1]
        result |= {"NextKeyMarker": upload.address, "NextUploadIdMarker": name}
    return document("ListMultipartUploadsResult", result)
