"""REST: the server's configuration, repositories and their settings, branches, tags."""

import json
from dataclasses import replace
from typing import Any

from ml_assets_tests.servers.lakefs import names, sample_data, staging
from ml_assets_tests.servers.lakefs.catalog import Catalog
from ml_assets_tests.servers.lakefs.commits import hard_reset
from ml_assets_tests.servers.lakefs.exchange import Request, Response, as_json
from ml_assets_tests.servers.lakefs.hooks import Event
from ml_assets_tests.servers.lakefs.listing import DEFAULT_PAGE, shown
from ml_assets_tests.servers.lakefs.refusals import (
    Conflict,
    Forbidden,
    Invalid,
    Missing,
    PreconditionFailed,
)
from ml_assets_tests.servers.lakefs.repository import Repository
from ml_assets_tests.servers.lakefs.rest_routes import empty, optional, route
from ml_assets_tests.servers.lakefs.trees import digest

_ONE = "/repositories/{repository}"
_SETTINGS = _ONE + "/settings"


@route("GET", "/healthcheck")
def health(catalog: Catalog, request: Request) -> Response:
    return empty()


@route("GET", "/config")
def config(catalog: Catalog, request: Request) -> Response:
    return as_json({"version_config": _version(catalog), "storage_config": _storage(catalog)})


@route("GET", "/config/version")
def version(catalog: Catalog, request: Request) -> Response:
    return as_json(_version(catalog))


@route("GET", "/config/storage")
def storage(catalog: Catalog, request: Request) -> Response:
    return as_json(_storage(catalog))


# --- repositories ---------------------------------------------------------------------------------


@route("GET", "/repositories")
def list_repositories(catalog: Catalog, request: Request) -> Response:
    prefix, after, search = (request.one(name) for name in ("prefix", "after", "search"))
    chosen = [
        catalog.repositories[name]
        for name in sorted(catalog.repositories)
        if name.startswith(prefix) and name > after and search in name
    ]
    amount = request.number("amount", DEFAULT_PAGE)
    return as_json(shown(chosen, amount, _repository, lambda repository: repository.name))


@route("POST", "/repositories")
def create_repository(catalog: Catalog, request: Request) -> Response:
    body = request.json(name=str, storage_namespace=str)
    if body["name"] not in catalog.repositories and optional(body, "storage_id", ""):
        raise Invalid("storage id: invalid value: validation error")
    made = catalog.create(
        body["name"],
        body["storage_namespace"],
        optional(body, "default_branch", "") or "main",
        read_only=optional(body, "read_only", False),
    )
    if optional(body, "sample_data", False):
        sample_data.populate(catalog, made)
    return as_json(_repository(made), 201)


@route("GET", _ONE)
def get_repository(catalog: Catalog, request: Request, repository: Repository) -> Response:
    return as_json(_repository(repository))


@route("DELETE", _ONE)
def delete_repository(catalog: Catalog, request: Request, repository: Repository) -> Response:
    catalog.delete(repository.name, force=request.flag("force"))
    return empty()


@route("GET", _ONE + "/metadata")
def get_metadata(catalog: Catalog, request: Request, repository: Repository) -> Response:
    return as_json(repository.settings.metadata)


@route("POST", _ONE + "/metadata")
def set_metadata(catalog: Catalog, request: Request, repository: Repository) -> Response:
    repository.check_writable()
    repository.settings.metadata.update(request.json(metadata=dict)["metadata"])
    return empty(201)


@route("DELETE", _ONE + "/metadata")
def delete_metadata(catalog: Catalog, request: Request, repository: Repository) -> Response:
    repository.check_writable()
    for key in request.json(keys=list)["keys"]:
        repository.settings.metadata.pop(key, None)
    return empty()


# --- settings -------------------------------------------------------------------------------------


@route("GET", _SETTINGS + "/gc_rules")
def get_gc_rules(catalog: Catalog, request: Request, repository: Repository) -> Response:
    if repository.settings.gc_rules is None:
        raise Missing("setting")
    return as_json(repository.settings.gc_rules)


@route("PUT", _SETTINGS + "/gc_rules")
def set_gc_rules(catalog: Catalog, request: Request, repository: Repository) -> Response:
    repository.check_writable()
    rules = request.json(default_retention_days=int, branches=list)
    days = [rules["default_retention_days"], *(b["retention_days"] for b in rules["branches"])]
    if min(days) < 0:
        raise Invalid("retention days: invalid value: validation error")
    repository.settings.gc_rules = rules
    return empty()


@route("DELETE", _SETTINGS + "/gc_rules")
def delete_gc_rules(catalog: Catalog, request: Request, repository: Repository) -> Response:
    repository.settings.gc_rules = None
    return empty()


@route("GET", _SETTINGS + "/branch_protection")
def get_protection(catalog: Catalog, request: Request, repository: Repository) -> Response:
    patterns = repository.settings.protected
    rules = [{"pattern": pattern} for pattern in patterns]
    return as_json(rules, ETag=_protection_tag(patterns))


@route("PUT", _SETTINGS + "/branch_protection")
def set_protection(catalog: Catalog, request: Request, repository: Repository) -> Response:
    repository.check_writable()
    rules = json.loads(request.body or b"[]")
    if not isinstance(rules, list) or not all("pattern" in rule for rule in rules):
        raise Invalid("request body has an error: property 'pattern' is missing")
    known = request.header("If-Match")
    with repository.lock:
        if known and known != _protection_tag(repository.settings.protected):
            raise PreconditionFailed
        repository.settings.protected = [rule["pattern"] for rule in rules]
    return empty()


# --- branches -------------------------------------------------------------------------------------


@route("GET", _ONE + "/branches")
def list_branches(catalog: Catalog, request: Request, repository: Repository) -> Response:
    visible = request.flag("show_hidden")
    branches = {
        name: branch.commit
        for name, branch in list(repository.branches.items())
        if visible or not branch.hidden
    }
    return as_json(_refs(request, branches))


@route("POST", _ONE + "/branches")
def create_branch(catalog: Catalog, request: Request, repository: Repository) -> Response:
    body = request.json(name=str, source=str)
    name, source = body["name"], body["source"]
    names.check_branch(name)
    if name in repository.commits:
        raise Conflict(f"commit ID {name}: conflict found")
    if name in repository.tags:
        raise Conflict(f"tag ID {name}: conflict found")
    repository.check_writable(force=optional(body, "force", False))
    try:
        commit = repository.commit(source).id
    except Missing as missing:
        missing.message = f"source reference '{source}': not found"
        raise
    if name in repository.branches:
        raise Conflict("branch already exists: not unique")
    event = Event("pre-create-branch", repository, name, source, commit_id=commit)
    run = catalog.hooks.before(event)
    made = repository.create_branch(name, source, hidden=optional(body, "hidden", False))
    catalog.hooks.after(replace(event, name="post-create-branch"), run)
    return Response(201, made.commit.encode(), {"Content-Type": "text/html"})


@route("GET", _ONE + "/branches/{branch}")
def get_branch(catalog: Catalog, request: Request, repository: Repository, branch: str) -> Response:
    return as_json({"id": branch, "commit_id": repository.branch(branch).commit})


@route("DELETE", _ONE + "/branches/{branch}")
def delete_branch(
    catalog: Catalog, request: Request, repository: Repository, branch: str
) -> Response:
    names.check_branch(branch)
    repository.check_writable(force=request.flag("force"))
    if branch == repository.default_branch:
        raise Forbidden("cannot delete repository default branch")
    commit = repository.branch(branch).commit
    event = Event("pre-delete-branch", repository, branch, commit)
    run = catalog.hooks.before(event)
    repository.delete_branch(branch)
    catalog.hooks.after(replace(event, name="post-delete-branch"), run)
    return empty()


@route("PUT", _ONE + "/branches/{branch}")
def reset_branch(
    catalog: Catalog, request: Request, repository: Repository, branch: str
) -> Response:
    body = request.json(type=str)
    path = optional(body, "path", "")
    match body["type"]:
        case "reset":
            staging.reset(repository, branch)
        case "object":
            names.check_path(path)
            staging.reset_paths(repository, branch, lambda each: each != path)
        case "common_prefix":
            staging.reset_paths(repository, branch, lambda each: not each.startswith(path))
        case _:
            raise Invalid("unknown reset type")
    return empty()


@route("PUT", _ONE + "/branches/{branch}/hard_reset")
def hard_reset_branch(
    catalog: Catalog, request: Request, repository: Repository, branch: str
) -> Response:
    hard_reset(repository, branch, request.required("ref"), force=request.flag("force"))
    return empty()


# --- tags -----------------------------------------------------------------------------------------


@route("GET", _ONE + "/tags")
def list_tags(catalog: Catalog, request: Request, repository: Repository) -> Response:
    return as_json(_refs(request, dict(repository.tags)))


@route("POST", _ONE + "/tags")
def create_tag(catalog: Catalog, request: Request, repository: Repository) -> Response:
    body = request.json(id=str, ref=str)
    name = body["id"]
    names.check_tag(name)
    if name in repository.branches:
        raise Conflict(f"branch name {name}: conflict found")
    if name in repository.commits:
        raise Conflict(f"commit ID {name}: conflict found")
    commit = repository.commit(body["ref"]).id
    repository.check_writable(force=optional(body, "force", False))
    if name in repository.tags:
        raise Conflict("tag already exists: not unique")
    event = Event("pre-create-tag", repository, source=commit, tag=name, commit_id=commit)
    run = catalog.hooks.before(event)
    repository.create_tag(name, commit)
    catalog.hooks.after(replace(event, name="post-create-tag"), run)
    return as_json({"id": name, "commit_id": commit}, 201)


@route("GET", _ONE + "/tags/{tag}")
def get_tag(catalog: Catalog, request: Request, repository: Repository, tag: str) -> Response:
    names.check_tag(tag)
    if tag not in repository.tags:
        raise Missing("tag")
    return as_json({"id": tag, "commit_id": repository.tags[tag]})


@route("DELETE", _ONE + "/tags/{tag}")
def delete_tag(catalog: Catalog, request: Request, repository: Repository, tag: str) -> Response:
    names.check_tag(tag)
    repository.check_writable(force=request.flag("force"))
    if tag not in repository.tags:
        raise Missing("tag")
    commit = repository.tags[tag]
    event = Event("pre-delete-tag", repository, source=commit, tag=tag, commit_id=commit)
    run = catalog.hooks.before(event)
    repository.delete_tag(tag)
    catalog.hooks.after(replace(event, name="post-delete-tag"), run)
    return empty()


# --- as the API shows them ------------------------------------------------------------------------


def _repository(repository: Repository) -> dict[str, Any]:
    return {
        "id": repository.name,
        "creation_date": repository.created,
        "default_branch": repository.default_branch,
        "storage_id": "",
        "storage_namespace": repository.namespace,
        "read_only": repository.read_only,
    }


def _refs(request: Request, refs: dict[str, str]) -> dict[str, Any]:
    prefix, after = request.one("prefix"), request.one("after")
    chosen = [name for name in sorted(refs) if name.startswith(prefix) and name > after]
    return shown(
        chosen,
        request.number("amount", DEFAULT_PAGE),
        lambda name: {"id": name, "commit_id": refs[name]},
        lambda name: name,
    )


def _protection_tag(patterns: list[str]) -> str:
    return digest(patterns)[:32]


def _version(catalog: Catalog) -> dict[str, Any]:
    return {"version": catalog.setup.version, "latest_version": "", "upgrade_recommended": False}


def _storage(catalog: Catalog) -> dict[str, Any]:
    scheme = f"{catalog.setup.blockstore}://"
    return {
        "blockstore_type": catalog.setup.blockstore,
        "blockstore_namespace_example": f"{scheme}example-bucket/",
        "blockstore_namespace_ValidityRegex": f"^{scheme}",
        "default_namespace_prefix": f"{scheme}tests",
        "pre_sign_support": catalog.setup.presigns,
        "pre_sign_support_ui": catalog.setup.presigns,
        "pre_sign_multipart_upload": catalog.setup.presigns,
        "import_support": catalog.setup.imports,
        "import_validity_regex": f"^{scheme}",
        "blockstore_description": "",
        "blockstore_id": "",
    }
