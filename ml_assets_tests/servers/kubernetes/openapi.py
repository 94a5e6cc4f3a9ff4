"""As much of OpenAPI as kubectl reads before it applies: that fields are checked by the server."""

from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.resources import RESOURCES, Resource


def document(path: str) -> Json | None:
    """The answer to a path below /openapi/v3; None for all others."""
    words = path.strip("/").split("/")
    if words[:2] != ["openapi", "v3"]:
        return None
    versions = {_prefix(r, v): (r.group, v) for r in RESOURCES for v in r.versions}
    if len(words) == 2:
        served = {name: {"serverRelativeURL": f"/openapi/v3/{name}"} for name in versions}
        return {"paths": served}
    found = versions.get("/".join(words[2:]))
    if found is None:
        return None
    own = [r for r in RESOURCES if r.group == found[0] and found[1] in r.versions]
    paths = dict(_path(resource, found[1]) for resource in own)
    info = {"title": "Kubernetes", "version": "v1.36.0"}
    return {"openapi": "3.0.0", "info": info, "paths": paths}


def _prefix(resource: Resource, version: str) -> str:
    return f"apis/{resource.group}/{version}" if resource.group else f"api/{version}"


def _path(resource: Resource, version: str) -> tuple[str, Json]:
    kind = {"group": resource.group, "version": version, "kind": resource.kind}
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    patch = {
        "parameters": [parameter],
        "responses": {},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": kind,
    }
    scope = "namespaces/{namespace}/" if resource.namespaced else ""
    return f"/{_prefix(resource, version)}/{scope}{resource.plural}/{{name}}", {"patch": patch}
