"""REST: imports of objects that lie elsewhere in the object store."""

from ml_assets_tests.servers.lakefs.catalog import Catalog
from ml_assets_tests.servers.lakefs.commits import Wish
from ml_assets_tests.servers.lakefs.exchange import Request, Response, as_json
from ml_assets_tests.servers.lakefs.imports import Source
from ml_assets_tests.servers.lakefs.refusals import Forbidden, Invalid
from ml_assets_tests.servers.lakefs.repository import Repository
from ml_assets_tests.servers.lakefs.rest_routes import empty, optional, route

_IMPORT = "/repositories/{repository}/branches/{branch}/import"


@route("POST", _IMPORT)
def start(catalog: Catalog, request: Request, repository: Repository, branch: str) -> Response:
    body = request.json(paths=list, commit=dict)
    if not catalog.setup.imports:
        raise Forbidden("import is not supported for this storage")
    said = body["commit"]
    wish = Wish(
        catalog.setup.user,
        optional(said, "message", "") or "Import objects",
        optional(said, "metadata", {}),
        force=optional(body, "force", False),
    )
    sources = [_source(each) for each in body["paths"]]
    name = catalog.imports.start(repository, branch, sources, wish)
    return as_json({"id": name}, 202)


@route("GET", _IMPORT)
def status(catalog: Catalog, request: Request, repository: Repository, branch: str) -> Response:
    return as_json(catalog.imports.status(repository, request.required("id")).shown())


@route("DELETE", _IMPORT)
def cancel(catalog: Catalog, request: Request, repository: Repository, branch: str) -> Response:
    catalog.imports.cancel(repository, request.required("id"))
    return empty()


def _source(said: dict[str, str]) -> Source:
    kind = said.get("type", "")
    if kind not in {"common_prefix", "object"}:
        raise Invalid(f"invalid import type: {kind}: invalid import source")
    return Source(said.get("path", ""), said.get("destination", ""), kind == "common_prefix")
