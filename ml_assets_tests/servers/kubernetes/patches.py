"""JSON patch (RFC 6902), JSON merge patch (RFC 7386) and Kubernetes' strategic merge patch."""

from typing import Any

from ml_assets_tests.servers.kubernetes import errors
from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.store import clone

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "conditions": "type",
    "ownerReferences": "uid",
    "topologySpreadConstraints": "topologyKey",
    "taints": "key",
    "addresses": "type",
}
_UNIONS = ("finalizers",)
"""Lists of plain values that are joined; all other lists without a key are replaced."""


def apply(obj: Json, patch: Any, media: str) -> Json:
    """The object after the patch; `obj` stays as it is."""
    if media == JSON_PATCH:
        if not isinstance(patch, list):
            raise errors.bad_request(
                "json: cannot unmarshal object into Go value of type jsonpatch.Patch"
            )
        return _json_patch(clone(obj), patch)
    if not isinstance(patch, dict):
        raise errors.bad_request("a merge patch is an object")
    if media == MERGE_PATCH:
        return merge(obj, patch)
    if media == STRATEGIC_PATCH:
        return _strategic(clone(obj), clone(patch))
    raise errors.unsupported_media(media)


def merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return clone(patch)
    result = clone(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


# --- strategic merge ------------------------------------------------------------------------------


def _strategic(target: Json, patch: Json) -> Json:
    directive = patch.pop("$patch", None)
    if directive == "replace":
        return patch
    if directive == "delete":
        return {}
    for key in patch.pop("$retainKeys", None) or []:
        del key  # the keys named are those of the patch itself: nothing else is to be kept
    for key, value in patch.items():
        if key.startswith("$setElementOrder/"):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            target[name] = [v for v in target.get(name) or [] if v not in value]
        elif value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            old = target.get(key)
            target[key] = _strategic(old if isinstance(old, dict) else {}, value)
        elif isinstance(value, list):
            target[key] = _strategic_list(key, target.get(key) or [], value)
        else:
            target[key] = value
    return target


def _strategic_list(name: str, old: list[Any], new: list[Any]) -> list[Any]:
    if name in _UNIONS:
        return [*(value for value in new if value not in old), *old]  # in this order
    key = _merge_key(name, [*old, *new])
    if key is None:
        return new
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in new):
        return [item for item in new if "$patch" not in item]
    result = list(old)
    for item in new:
        at = next((i for i, o in enumerate(result) if o.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(_strategic({}, item))
        else:
            result[at] = _strategic(result[at], item)
    return result


def _merge_key(name: str, items: list[Any]) -> str | None:
    if not all(isinstance(item, dict) for item in items):
        return None
    if name == "ports":
        return "containerPort" if any("containerPort" in item for item in items) else "port"
    return _MERGE_KEYS.get(name)


# --- JSON patch -----------------------------------------------------------------------------------


def _json_patch(obj: Json, operations: list[Json]) -> Json:
    for operation in operations:
        try:
            _operate(obj, operation)
        except (KeyError, IndexError, ValueError, TypeError):
            message = "the server rejected our request due to an error in our request"
            raise errors.ApiError(422, "Invalid", message) from None
    return obj


def _operate(obj: Json, operation: Json) -> None:
    kind, path = operation["op"], _parts(operation["path"])
    if kind == "test":
        if _read(obj, path) != operation["value"]:
            raise ValueError(operation["path"])
    elif kind == "remove":
        _remove(obj, path)
    elif kind == "add":
        _add(obj, path, operation["value"])
    elif kind == "replace":
        _remove(obj, path)
        _add(obj, path, operation["value"])
    elif kind in ("move", "copy"):
        source = _parts(operation["from"])
        value = clone(_read(obj, source))
        if kind == "move":
            _remove(obj, source)
        _add(obj, path, value)
    else:
        raise ValueError(kind)


def _parts(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _read(value: Any, path: list[str]) -> Any:
    for part in path:
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def _remove(obj: Any, path: list[str]) -> None:
    parent = _read(obj, path[:-1])
    del parent[int(path[-1]) if isinstance(parent, list) else path[-1]]


def _add(obj: Any, path: list[str], value: Any) -> None:
    parent, last = _read(obj, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else int(last), clone(value))
    else:
        parent[last] = clone(value)
