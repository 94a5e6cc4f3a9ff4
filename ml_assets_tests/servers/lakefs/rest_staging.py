"""REST: addresses that clients fill themselves: handed out, presigned, linked; uploads in parts."""

import time
from typing import Any

from ml_assets_tests.servers.lakefs import names, staging
from ml_assets_tests.servers.lakefs.catalog import Catalog
from ml_assets_tests.servers.lakefs.exchange import BadRange, Request, Response, as_json, byte_range
from ml_assets_tests.servers.lakefs.object_store import Upload
from ml_assets_tests.servers.lakefs.presigned import presigned_url
from ml_assets_tests.servers.lakefs.refusals import Invalid, NotImplementedHere, Refused
from ml_assets_tests.servers.lakefs.repository import Repository
from ml_assets_tests.servers.lakefs.rest_objects import check_branch, if_absent_of, stats
from ml_assets_tests.servers.lakefs.rest_routes import empty, optional, route
from ml_assets_tests.servers.lakefs.trees import Entry

_BRANCH = "/repositories/{repository}/branches/{branch}"
_PMPU = _BRANCH + "/staging/pmpu"
_MOST_PARTS = 10_000


@route("GET", _BRANCH + "/staging/backing")
def get_physical_address(
    catalog: Catalog, request: Request, repository: Repository, branch: str
) -> Response:
    path = request.required("path")
    address = catalog.store.handed_out(repository.namespace, repository.name, branch, path)
    answer: dict[str, Any] = {"physical_address": address}
    if request.flag("presign"):
        try:
            url, expires = presigned_url(catalog, "PUT", address)
        except Invalid as unsupported:
            raise Refused(unsupported.message) from unsupported  # a 500 of lakeFS, only here
        answer |= {"presigned_url": url, "presigned_url_expiry": expires}
    return as_json(answer)


@route("PUT", _BRANCH + "/staging/backing")
def link_physical_address(
    catalog: Catalog, request: Request, repository: Repository, branch: str
) -> Response:
    path = request.required("path")
    body = request.json(staging=dict, checksum=str, size_bytes=int)
    address = optional(body["staging"], "physical_address", "")
    if address.startswith(f"{repository.namespace.rstrip('/')}/data/"):
        catalog.store.check_handed_out(address, repository.name, branch, path)
    checksum = body["checksum"].strip().strip('"')
    if not checksum:
        raise Invalid("checksum is required")
    entry = Entry(
        address,
        checksum,
        body["size_bytes"],
        optional(body, "mtime", int(time.time())),
        optional(body, "content_type", "") or "application/octet-stream",
        optional(body, "user_metadata", {}),
    )
    if_absent = if_absent_of(request)
    force = optional(body, "force", False)
    staging.write(repository, branch, path, entry, if_absent=if_absent, force=force)
    return as_json(stats(path, entry))


@route("POST", _PMPU)
def begin_multipart(
    catalog: Catalog, request: Request, repository: Repository, branch: str
) -> Response:
    _check_presigns(catalog)
    path, parts = request.required("path"), request.number("parts", 0)
    check_branch(repository, branch)
    names.check_path(path)
    if not 0 <= parts <= _MOST_PARTS:
        raise Invalid(f"parts can be between 0 and {_MOST_PARTS}")
    address = catalog.store.handed_out(repository.namespace, repository.name, branch, path)
    name = catalog.store.begin(Upload(address, path))
    answer: dict[str, Any] = {"physical_address": address, "upload_id": name}
    if parts:
        answer["presigned_urls"] = [
            _part_url(catalog, address, name, number) for number in range(1, parts + 1)
        ]
    return as_json(answer, 201)


@route("PUT", _PMPU + "/{name}/parts/{number}")
def presign_part(
    catalog: Catalog, request: Request, repository: Repository, branch: str, name: str, number: str
) -> Response:
    _check_presigns(catalog)
    upload = catalog.store.upload(name)
    return as_json({"presigned_url": _part_url(catalog, upload.address, name, int(number))})


@route("PUT", _PMPU + "/{name}/parts/{number}/copy")
def copy_part(
    catalog: Catalog, request: Request, repository: Repository, branch: str, name: str, number: str
) -> Response:
    """A part that lies in lakeFS already: the whole of an object, or a range of it."""
    _check_presigns(catalog)
    body = request.json(physical_address=str, copy_source=dict)
    said = body["copy_source"]
    _check_address(catalog, request, repository, branch, body["physical_address"])
    entry, content = catalog.read(catalog.repository(said["repository"]), said["ref"], said["path"])
    if optional(said, "range", ""):
        try:
            first, last = byte_range(said["range"], entry.size)
        except BadRange as bad:
            raise Refused(f"parse range {said['range']!r}") from bad
        content = content[first : last + 1]
    etag = catalog.store.put_part(name, int(number), content)
    return Response(204, b"", {"ETag": f'"{etag}"'})


@route("PUT", _PMPU + "/{name}")
def complete_multipart(
    catalog: Catalog, request: Request, repository: Repository, branch: str, name: str
) -> Response:
    _check_presigns(catalog)
    body = request.json(physical_address=str, parts=list)
    address = body["physical_address"]
    if not body["parts"]:
        raise Invalid("parts are required")
    path = _check_address(catalog, request, repository, branch, address)
    parts = [(int(part["part_number"]), str(part["etag"])) for part in body["parts"]]
    checksum, size = catalog.store.complete(name, parts)
    entry = Entry(
        address,
        checksum,
        size,
        int(time.time()),
        optional(body, "content_type", "") or "application/octet-stream",
        optional(body, "user_metadata", {}),
    )
    staging.write(repository, branch, path, entry)
    return as_json(stats(path, entry))


@route("DELETE", _PMPU + "/{name}")
def abort_multipart(
    catalog: Catalog, request: Request, repository: Repository, branch: str, name: str
) -> Response:
    _check_presigns(catalog)
    address = request.json(physical_address=str)["physical_address"]
    _check_address(catalog, request, repository, branch, address)
    catalog.store.abort(name)
    return empty()


def _check_address(
    catalog: Catalog, request: Request, repository: Repository, branch: str, address: str
) -> str:
    """The path that the request is about; the address was handed out for it."""
    path = request.required("path")
    names.check_path(path)
    catalog.store.check_handed_out(address, repository.name, branch, path)
    return path


def _check_presigns(catalog: Catalog) -> None:
    if not catalog.setup.presigns:
        raise NotImplementedHere("presign multipart upload API is not supported")


def _part_url(catalog: Catalog, address: str, name: str, number: int) -> str:
    query = {"partNumber": str(number), "uploadId": name}
    return presigned_url(catalog, "PUT", address, query)[0]
