"""S3: an object at ``/<repository>/<reference>/<path>``, whole or in parts; many removed."""

import time
from contextlib import suppress
from dataclasses import dataclass
from email.header import Header, decode_header, make_header
from urllib.parse import unquote_plus
from xml.etree import ElementTree

from ml_assets_tests.servers.lakefs import staging
from ml_assets_tests.servers.lakefs.catalog import Catalog
from ml_assets_tests.servers.lakefs.exchange import (
    BadRange,
    Request,
    Response,
    Unsatisfiable,
    byte_range,
    http_time,
)
from ml_assets_tests.servers.lakefs.object_store import Upload, md5
from ml_assets_tests.servers.lakefs.presigned import presigned_url
from ml_assets_tests.servers.lakefs.refusals import (
    Collected,
    Forbidden,
    Invalid,
    Missing,
    NotImplementedHere,
    PreconditionFailed,
    Refused,
)
from ml_assets_tests.servers.lakefs.repository import Repository
from ml_assets_tests.servers.lakefs.s3_xml import S3Error, document, timestamp
from ml_assets_tests.servers.lakefs.trees import Entry

_META = "x-amz-meta-"
_KEPT_AS = "X-Amz-Meta-"
"""lakeFS keeps metadata of the gateway under this prefix, also where its own API shows it."""
_FOLLOWS = "s3RedirectionSupport"
"""A client that says so in its name is sent to the object store."""
_LARGEST_DELETE = 1000
_LARGEST_METADATA = 2048


@dataclass(frozen=True)
class Place:
    catalog: Catalog
    repository: Repository
    reference: str
    path: str

    @property
    def key(self) -> str:
        return f"{self.reference}/{self.path}"

    def read(self) -> tuple[Entry, bytes]:
        return self.catalog.read(self.repository, self.reference, self.path)

    def check_branch(self) -> None:
        self.repository.check_writable()
        if self.reference not in self.repository.branches:
            raise S3Error("NoSuchBucket")

    def check_condition(self, request: Request) -> bool:
        """Whether the path must be absent; refused at once where it is there."""
        said = request.header("If-None-Match")
        if request.header("If-Match") or said not in {"", "*"}:
            raise NotImplementedHere
        if said and staging.holds(self.repository, self.reference, self.path):
            raise PreconditionFailed
        return bool(said)


def get(request: Request, place: Place) -> Response:
    """Also HEAD: the same headers, no body, and no look at the bytes."""
    whole = request.method == "GET"
    if whole and request.has("tagging"):
        return document("Tagging", {"TagSet": ""})
    entry = staging.read(place.repository, place.reference, place.path)
    if whole and _FOLLOWS in request.header("User-Agent"):
        url, _ = presigned_url(place.catalog, "GET", entry.address)
        return Response(307, b"", {"Location": url})
    first, last, status = 0, entry.size - 1, 200
    try:
        if request.header("Range"):
            (first, last), status = byte_range(request.header("Range"), entry.size), 206
    except Unsatisfiable:
        raise
    except BadRange:
        status = 200  # a range that cannot be read is no range
    headers = {
        "Last-Modified": http_time(entry.modified),
        "ETag": f'"{entry.checksum}"',
        "Content-Type": entry.content_type,
        "Accept-Ranges": "bytes",
        "Content-Length": str(last - first + 1),
        **_metadata_headers(entry),
    }
    if status == 206:
        headers["Content-Range"] = f"bytes {first}-{last}/{entry.size}"
    body = place.catalog.store.get(entry.address)[first : last + 1] if whole else b""
    return Response(status, body, headers)


def put(request: Request, place: Place) -> Response:
    place.check_branch()
    if request.has("uploadId"):
        return _put_part(request, place)
    if request.header("x-amz-copy-source"):
        return _copy(request, place)
    if request.has("tagging") or request.has("acl"):
        raise S3Error("ERRLakeFSNotSupported")
    if_absent = place.check_condition(request)
    entry = place.catalog.put(
        place.repository, request.body, request.header("Content-Type"), _metadata(request)
    )
    staging.write(place.repository, place.reference, place.path, entry, if_absent=if_absent)
    return Response(200, b"", {"ETag": f'"{entry.checksum}"'})


def delete(request: Request, place: Place) -> Response:
    with suppress(Missing):  # nothing to remove is nothing to complain about
        staging.remove(place.repository, place.reference, [place.path])
    return Response(204)


def delete_many(request: Request, catalog: Catalog, repository: Repository) -> Response:
    repository.check_writable()
    try:
        root = ElementTree.fromstring(request.body)
    except ElementTree.ParseError as bad:
        raise S3Error("BadRequest") from bad
    keys = [each.text or "" for each in root.iterfind(".//{*}Object/{*}Key")]
    if not 0 < len(keys) <= _LARGEST_DELETE:
        raise S3Error("MalformedXML")
    quiet = root.findtext("{*}Quiet", "").lower() == "true"
    deleted, errors = [], []
    for key in keys:
        reference, _, path = key.partition("/")
        try:
            staging.remove(repository, reference, [path] if path else [])
        except Missing:
            pass
        except Refused as refused:
            protected = isinstance(refused, Forbidden)
            code = "WriteToProtectedBranch" if protected else "ErrDeletingKey"
            words = f"error deleting object: {refused.message}"
            errors.append({"Code": code, "Key": key, "Message": words})
            continue
        if not quiet:
            deleted.append({"Key": key})
    return document("DeleteResult", {"Deleted": deleted, "Error": errors})


# --- in parts -------------------------------------------------------------------------------------


def begin(request: Request, place: Place) -> Response:
    place.check_branch()
    address = place.catalog.store.new_address(place.repository.namespace)
    content_type = request.header("Content-Type") or "application/octet-stream"
    upload = Upload(address, place.path, content_type, _metadata(request))
    name = place.catalog.store.begin(upload)
    answer = {"Bucket": place.repository.name, "Key": place.key, "UploadId": name}
    return document("InitiateMultipartUploadResult", answer)


def complete(request: Request, place: Place) -> Response:
    """The checksum is kept without the number of parts, as lakeFS does."""
    place.repository.check_writable()
    name = request.one("uploadId")
    upload = _upload(place, name)
    if_absent = place.check_condition(request)
    try:
        root = ElementTree.fromstring(request.body)
        parts = [
            (int(part.findtext("{*}PartNumber", "")), part.findtext("{*}ETag", ""))
            for part in root.iterfind("{*}Part")
        ]
        etag, size = place.catalog.store.complete(name, parts)
    except (ElementTree.ParseError, ValueError, Invalid) as bad:
        raise S3Error("InternalError") from bad
    checksum, now = etag.partition("-")[0], int(time.time())
    entry = Entry(upload.address, checksum, size, now, upload.content_type, upload.metadata)
    staging.write(place.repository, place.reference, place.path, entry, if_absent=if_absent)
    answer = {
        "Location": f"http://{request.header('Host')}{request.raw_path}",
        "Bucket": place.repository.name,
        "Key": place.key,
        "ETag": f'"{etag}"',
    }
    return document("CompleteMultipartUploadResult", answer)


def abort(request: Request, place: Place) -> Response:
    try:
        place.catalog.store.abort(request.one("uploadId"))
    except Missing as missing:
        raise S3Error("NoSuchKey") from missing
    return Response(204)


def list_parts(request: Request, place: Place) -> Response:
    upload = _upload(place, request.one("uploadId"))
    parts = [
        {
            "PartNumber": number,
            "ETag": f'"{md5(content)}"',
            "LastModified": timestamp(int(time.time())),
            "Size": len(content),
        }
        for number, content in sorted(upload.parts.items())
    ]
    answer = {"Bucket": place.repository.name, "Key": place.key, "Part": parts}
    return document("ListPartsResult", {**answer, "IsTruncated": False})


def _put_part(request: Request, place: Place) -> Response:
    name, number = request.one("uploadId"), request.one("partNumber")
    _upload(place, name)
    if not number.isdigit():
        raise S3Error("InvalidArgument")
    source = request.header("x-amz-copy-source")
    if not source:
        etag = place.catalog.store.put_part(name, int(number), request.body)
        return Response(200, b"", {"ETag": f'"{etag}"'})
    entry, content = _source(place, source).read()
    try:
        first, last = byte_range(request.header("x-amz-copy-source-range"), entry.size)
    except BadRange:  # lakeFS then takes the whole object
        first, last = 0, entry.size - 1
    etag = place.catalog.store.put_part(name, int(number), content[first : last + 1])
    return _copied("CopyPartResult", etag, int(time.time()))


def _upload(place: Place, name: str) -> Upload:
    try:
        return place.catalog.store.upload(name)
    except Missing as missing:  # lakeFS cannot tell an unknown upload from a broken store
        raise S3Error("InternalError") from missing


# --- copies and metadata --------------------------------------------------------------------------


def _copy(request: Request, place: Place) -> Response:
    source = _source(place, request.header("x-amz-copy-source"))
    try:
        made = place.catalog.copy(place.repository, source.read()[0])
    except Collected as collected:
        raise S3Error("InvalidRequest", "This copy request is illegal") from collected
    if request.header("x-amz-metadata-directive") == "REPLACE":
        said = _metadata(request)
        made = Entry(made.address, made.checksum, made.size, made.modified, made.content_type, said)
    staging.write(place.repository, place.reference, place.path, made)
    return _copied("CopyObjectResult", made.checksum, made.modified)


def _copied(root: str, checksum: str, modified: int) -> Response:
    answer = {"LastModified": timestamp(modified), "ETag": f'"{checksum}"'}
    return document(root, answer)


def _source(place: Place, said: str) -> Place:
    parts = unquote_plus(said).lstrip("/").split("/", 2)
    if len(parts) < 3:
        raise S3Error("InvalidArgument", "Copy Source must mention the source bucket and key.")
    repository, reference, path = parts
    return Place(place.catalog, place.catalog.repository(repository), reference, path)


def _metadata(request: Request) -> dict[str, str]:
    metadata = {}
    for name, value in request.headers.items():
        if name.lower().startswith(_META):
            said = str(make_header(decode_header(value)))
            metadata[_KEPT_AS + name.lower().removeprefix(_META)] = said
    if (
        sum(len(name) - len(_META) + len(said) for name, said in metadata.items())
        > _LARGEST_METADATA
    ):
        raise S3Error("InvalidArgument", "Your metadata headers exceed the maximum size.")
    return metadata


def _metadata_headers(entry: Entry) -> dict[str, str]:
    return {
        name: value if value.isascii() else Header(value, "utf-8").encode()
        for name, value in entry.metadata.items()
        if name.startswith(_KEPT_AS)
    }
