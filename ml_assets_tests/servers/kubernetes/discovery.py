"""What a client asks before it asks for anything: versions, groups, resources, health."""

from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.resources import RESOURCES, Resource

VERSION: Json = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-04-22T00:00:00Z",
    "goVersion": "go1.25",
    "compiler": "gc",
    "platform": "linux/amd64",
}


def document(path: str) -> Json | None:
    """The answer to a path of discovery; None for all others."""
    words = path.strip("/").split("/")
    if words == ["version"]:
        return VERSION
    if words == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if words == ["apis"]:
        groups = [_group(name, versions) for name, versions in _groups().items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if words == ["api", "v1"]:
        return _resource_list("", "v1")
    if words[0] == "apis" and len(words) == 2 and words[1] in _groups():
        group = _group(words[1], _groups()[words[1]])
        return {"kind": "APIGroup", "apiVersion": "v1", **group}
    if words[0] == "apis" and len(words) == 3 and words[2] in _groups().get(words[1], ()):
        return _resource_list(words[1], words[2])
    return None


def _groups() -> dict[str, tuple[str, ...]]:
    """The versions of each group but the first, which has no name; the preferred one first."""
    return {resource.group: resource.versions for resource in RESOURCES if resource.group}


def _group(group: str, versions: tuple[str, ...]) -> Json:
    served = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": served, "preferredVersion": served[0]}


def _resource_list(group: str, version: str) -> Json:
    found = []
    for resource in RESOURCES:
        if resource.group == group and version in resource.versions:
            found.append(_entry(resource))
            found += [_subresource(resource, name) for name in resource.subresources]
    name = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": name,
        "resources": found,
    }


def _entry(resource: Resource) -> Json:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short:
        entry["shortNames"] = list(resource.short)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return entry


_SUBRESOURCE_VERBS = {"log": ["get"], "eviction": ["create"], "status": ["get", "patch", "update"]}


def _subresource(resource: Resource, name: str) -> Json:
    kind = "Eviction" if name == "eviction" else resource.kind
    entry: Json = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": kind,
        "verbs": _SUBRESOURCE_VERBS[name],
    }
    if name == "eviction":
        entry |= {"group": "policy", "version": "v1"}
    return entry
