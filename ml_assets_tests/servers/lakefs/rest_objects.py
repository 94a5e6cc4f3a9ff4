"""REST: objects (read, write, list, stat, copy, delete) and addresses that clients fill."""

import email.parser
import email.policy
import time
from typing import Any

from ml_assets_tests.servers.lakefs import names, staging
from ml_assets_tests.servers.lakefs.catalog import Catalog
from ml_assets_tests.servers.lakefs.exchange import (
    BadRange,
    Request,
    Response,
    Unsatisfiable,
    as_json,
    byte_range,
    http_time,
)
from ml_assets_tests.servers.lakefs.listing import DEFAULT_PAGE, folded, shown
from ml_assets_tests.servers.lakefs.presigned import presigned_url
from ml_assets_tests.servers.lakefs.refusals import (
    Invalid,
    Missing,
    NotImplementedHere,
    PreconditionFailed,
    Refused,
)
from ml_assets_tests.servers.lakefs.repository import Repository
from ml_assets_tests.servers.lakefs.rest_routes import empty, optional, route
from ml_assets_tests.servers.lakefs.trees import Entry

_BRANCH = "/repositories/{repository}/branches/{branch}"
_REF = "/repositories/{repository}/refs/{reference}"

_META = "x-lakefs-meta-"
_INTERNAL_META = "x-lakefs-internal-"
_SHOWN_INLINE = {"image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf"}
_LARGEST_DELETE = 1000


# --- write ----------------------------------------------------------------------------------------


@route("POST", _BRANCH + "/objects")
def upload(catalog: Catalog, request: Request, repository: Repository, branch: str) -> Response:
    path = request.required("path")
    check_branch(repository, branch)
    if_absent = if_absent_of(request)
    if if_absent and staging.holds(repository, branch, path):
        raise PreconditionFailed("path already exists")
    content, content_type = _content(request)
    entry = catalog.put(repository, content, content_type, _metadata(request))
    force = request.flag("force")
    try:
        staging.write(repository, branch, path, entry, if_absent=if_absent, force=force)
    except PreconditionFailed as failed:
        failed.message = "path already exists"
        raise
    return as_json({**stats(path, entry), "content_type": content_type}, 201)


@route("GET", _BRANCH + "/objects/stage_allowed")
def may_upload(catalog: Catalog, request: Request, repository: Repository, branch: str) -> Response:
    request.required("path")
    return empty()


@route("PUT", _BRANCH + "/objects")
def stage(catalog: Catalog, request: Request, repository: Repository, branch: str) -> Response:
    """An object that lies in the object store already, wherever that is."""
    path = request.required("path")
    body = request.json(physical_address=str, checksum=str, size_bytes=int)
    if not body["physical_address"].startswith(f"{catalog.setup.blockstore}://"):
        kind = catalog.setup.blockstore
        raise Invalid(f"physical address is not valid for block adapter: {kind}")
    entry = Entry(
        body["physical_address"],
        body["checksum"],
        body["size_bytes"],
        optional(body, "mtime", int(time.time())),
        optional(body, "content_type", "") or "application/octet-stream",
        optional(body, "metadata", {}),
    )
    staging.write(repository, branch, path, entry, force=optional(body, "force", False))
    return as_json(stats(path, entry), 201)


@route("DELETE", _BRANCH + "/objects")
def delete(catalog: Catalog, request: Request, repository: Repository, branch: str) -> Response:
    path = request.required("path")
    staging.remove(repository, branch, [path], force=request.flag("force"))
    return empty()


@route("POST", _BRANCH + "/objects/delete")
def delete_many(
    catalog: Catalog, request: Request, repository: Repository, branch: str
) -> Response:
    paths = request.json(paths=list)["paths"]
    if len(paths) > _LARGEST_DELETE:
        raise Invalid(f"request size exceeded, max paths is set to {_LARGEST_DELETE}")
    errors = []
    try:
        chosen = [path for path in paths if path]
        staging.remove(repository, branch, chosen, force=request.flag("force"))
    except Refused as refused:
        status = refused.status if refused.status == 403 else 500
        said = {"status_code": status, "message": refused.message}
        if refused.status != 404:
            errors = [{"path": path, **said} for path in paths]
    return as_json({"errors": errors})


@route("POST", _BRANCH + "/objects/copy")
def copy(catalog: Catalog, request: Request, repository: Repository, branch: str) -> Response:
    target = request.required("dest_path")
    body = request.json(src_path=str)
    if optional(body, "shallow", False):
        raise NotImplementedHere
    check_branch(repository, branch)
    source = optional(body, "src_ref", "") or branch
    made = catalog.copy(repository, staging.read(repository, source, body["src_path"]))
    force = optional(body, "force", False)
    staging.write(repository, branch, target, made, force=force)
    return as_json(stats(target, made), 201)


@route("PUT", _BRANCH + "/objects/stat/user_metadata")
def set_user_metadata(
    catalog: Catalog, request: Request, repository: Repository, branch: str
) -> Response:
    path = request.required("path")
    metadata = request.json(set=dict)["set"]
    check_branch(repository, branch)
    old = staging.read(repository, branch, path)
    entry = Entry(old.address, old.checksum, old.size, old.modified, old.content_type, metadata)
    staging.write(repository, branch, path, entry)
    return empty()


# --- read -----------------------------------------------------------------------------------------


@route("GET", _REF + "/objects")
def get(catalog: Catalog, request: Request, repository: Repository, reference: str) -> Response:
    entry = staging.read(repository, reference, request.required("path"))
    headers = {"ETag": f'"{entry.checksum}"'}
    if request.header("If-None-Match") == headers["ETag"]:
        return Response(304)
    if request.flag("presign"):
        return Response(302, b"", {"Location": _url(catalog, entry)[0]})
    inline = entry.content_type in _SHOWN_INLINE
    headers |= {
        "Last-Modified": http_time(entry.modified),
        "Content-Type": entry.content_type,
        "Cache-Control": "no-store, must-revalidate",
        "Expires": "0",
        "Content-Disposition": "inline" if inline else "attachment",  # and no filename
    }
    spec = request.header("Range")
    if not spec:
        return Response(200, catalog.store.get(entry.address), headers)
    try:
        first, last = byte_range(spec, entry.size)
    except BadRange as bad:
        refused = as_json({"message": "Requested Range Not Satisfiable"}, 416)
        if isinstance(bad, Unsatisfiable):
            refused.headers["Content-Range"] = f"bytes */{entry.size}"
        return refused
    headers["Content-Range"] = f"bytes {first}-{last}/{entry.size}"
    return Response(206, catalog.store.get(entry.address)[first : last + 1], headers)


@route("HEAD", _REF + "/objects")
def head(catalog: Catalog, request: Request, repository: Repository, reference: str) -> Response:
    entry = staging.read(repository, reference, request.required("path"))
    headers = {
        "ETag": f'"{entry.checksum}"',
        "Last-Modified": http_time(entry.modified),
        "Accept-Ranges": "bytes",
        "Content-Type": entry.content_type,
        "Cache-Control": "no-store, must-revalidate",
        "Expires": "0",
        "Content-Length": str(entry.size),
    }
    spec = request.header("Range")
    if not spec:
        return Response(200, b"", headers)
    try:
        first, last = byte_range(spec, entry.size)
    except BadRange:
        return Response(416)
    headers |= {
        "Content-Range": f"bytes {first}-{last}/{entry.size}",
        "Content-Length": str(last - first + 1),
    }
    return Response(206, b"", headers)


@route("GET", _REF + "/objects/stat")
def stat(catalog: Catalog, request: Request, repository: Repository, reference: str) -> Response:
    path = request.required("path")
    return as_json(_seen(catalog, request, path, staging.read(repository, reference, path)))


@route("GET", _REF + "/objects/underlyingProperties")
def properties(
    catalog: Catalog, request: Request, repository: Repository, reference: str
) -> Response:
    staging.read(repository, reference, request.required("path"))
    return as_json({"storage_class": "STANDARD"})


@route("GET", _REF + "/objects/ls")
def list_objects(
    catalog: Catalog, request: Request, repository: Repository, reference: str
) -> Response:
    tree = repository.tree(reference)
    prefix, delimiter, after = (request.one(name) for name in ("prefix", "delimiter", "after"))

    def show(item: tuple[str, bool]) -> dict[str, Any]:
        path, is_prefix = item
        if is_prefix:
            empty_stats = {"physical_address": "", "checksum": "", "mtime": 0}
            return {"path": path, "path_type": "common_prefix", **empty_stats}
        return _seen(catalog, request, path, tree[path])

    items = folded(sorted(tree), prefix, delimiter, after)
    amount = request.number("amount", DEFAULT_PAGE)
    return as_json(shown(items, amount, show, lambda item: item[0]))


# --- what they share ------------------------------------------------------------------------------


def check_branch(repository: Repository, branch: str) -> None:
    names.check_branch(branch)
    if branch not in repository.branches:
        raise Missing(f"branch '{branch}'")


def if_absent_of(request: Request) -> bool:
    said = request.header("If-None-Match")
    if request.header("If-Match") or said not in {"", "*"}:
        raise NotImplementedHere
    return bool(said)


def _content(request: Request) -> tuple[bytes, str]:
    """The bytes and their type: the body, or the part ``content`` of a form."""
    content_type = request.header("Content-Type") or "application/octet-stream"
    if not content_type.startswith("multipart/form-data"):
        return request.body, content_type
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    form = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + request.body)
    for part in form.iter_parts():
        if part.get_param("name", header="content-disposition") == "content":
            content = part.get_payload(decode=True)
            said = str(part["Content-Type"] or "")
            return (content if isinstance(content, bytes) else b""), said
    raise Refused("multipart upload missing key 'content': http: no such file")


def _metadata(request: Request) -> dict[str, str]:
    metadata = {}
    for name, value in request.headers.items():
        lower = name.lower()
        if lower.startswith(_META):
            metadata[lower.removeprefix(_META)] = value
        elif lower.startswith(_INTERNAL_META):
            metadata["::lakefs::" + lower.removeprefix(_INTERNAL_META)] = value
    return metadata


def stats(path: str, entry: Entry) -> dict[str, Any]:
    return {
        "path": path,
        "path_type": "object",
        "physical_address": entry.address,
        "checksum": entry.checksum,
        "mtime": entry.modified,
        "size_bytes": entry.size,
        "content_type": entry.content_type,
        "metadata": dict(entry.metadata),
    }


def _seen(catalog: Catalog, request: Request, path: str, entry: Entry) -> dict[str, Any]:
    """Of a reader who may ask for a presigned URL, or for no metadata."""
    seen = stats(path, entry)
    if request.one("user_metadata", "true") == "false":
        seen["metadata"] = {}
    if request.flag("presign"):
        seen["physical_address"], seen["physical_address_expiry"] = _url(catalog, entry)
    return seen


def _url(catalog: Catalog, entry: Entry) -> tuple[str, int]:
    return presigned_url(catalog, "GET", entry.address)
