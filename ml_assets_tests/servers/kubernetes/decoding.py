"""Reading an object as a Go struct would: types must fit, unknown fields are dropped and told.

The types are those of the official client's models, which are made from the published schema.
"""

import base64
import binascii
import functools
import re
from typing import Any

from ml_assets_tests.servers.kubernetes.errors import Json, bad_request
from ml_assets_tests.servers.kubernetes.resources import Resource

_MODELS = {"Event": "CoreV1Event"}
_LIST = re.compile(r"list\[(.+)\]")
_MAP = re.compile(r"dict\(str, (.+)\)")
_GO = {"str": "string", "int": "int32", "bool": "bool", "float": "float64"}
_QUANTITIES = ("limits", "requests", "hard", "capacity", "allocatable", "overhead")


def decode(resource: Resource, obj: Json) -> tuple[Json, list[str]]:
    """The object without what its kind does not have, and a warning for each such field.

    400 where a value has the wrong type. What the client has no model for passes as it is.
    """
    model = _model(_MODELS.get(resource.kind, f"V1{resource.kind}"))
    if model is None or resource.is_custom:
        return obj, []
    warnings: list[str] = []
    try:
        found = _struct(model, obj, "", warnings)
    except TypeError as error:
        kind, version = resource.kind, resource.version
        why = f'{kind} in version "{version}" cannot be handled as a {kind}: json: {error}'
        raise bad_request(why) from None
    if resource.kind == "Secret":
        _check_base64(found)
    return found, warnings


@functools.cache
def _model(name: str) -> Any:
    from kubernetes.client import models

    return getattr(models, name, None)


@functools.cache
def _fields(model: Any) -> dict[str, str]:
    """JSON name -> type."""
    return {model.attribute_map[name]: kind for name, kind in model.openapi_types.items()}


def _struct(model: Any, value: Any, path: str, warnings: list[str]) -> Json:
    if not isinstance(value, dict):
        raise TypeError(_cannot(value, path, model.__name__))
    fields, found = _fields(model), {}
    for name, inner in value.items():
        at = f"{path}.{name}" if path else name
        if name not in fields:
            warnings.append(f'unknown field "{at}"')
        elif inner is not None:
            found[name] = _value(fields[name], inner, at, warnings)
    return found


def _value(kind: str, value: Any, path: str, warnings: list[str]) -> Any:
    if listed := _LIST.fullmatch(kind):
        if not isinstance(value, list):
            raise TypeError(_cannot(value, path, f"[]{_GO.get(listed[1], listed[1])}"))
        return [_value(listed[1], v, f"{path}[{i}]", warnings) for i, v in enumerate(value)]
    if mapped := _MAP.fullmatch(kind):
        if not isinstance(value, dict):
            raise TypeError(_cannot(value, path, f"map[string]{_GO.get(mapped[1], mapped[1])}"))
        if path.rpartition(".")[2] in _QUANTITIES:  # numbers are quantities, too
            return {k: str(v) for k, v in value.items()}
        return {k: _value(mapped[1], v, path, warnings) for k, v in value.items()}
    if kind in ("object", "datetime"):
        return value
    if kind in _GO:
        return _plain(kind, value, path)
    return _struct(_model(kind), value, path, warnings)


def _plain(kind: str, value: Any, path: str) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool)
    fits = {
        "str": isinstance(value, str),
        "int": whole,
        "bool": isinstance(value, bool),
        "float": whole or isinstance(value, float),
    }[kind]
    if not fits:
        raise TypeError(_cannot(value, path, _GO[kind]))
    return value


def _cannot(value: Any, path: str, wanted: str) -> str:
    kinds = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}
    got = kinds.get(type(value), "object")
    return f"cannot unmarshal {got} into Go struct field {path} of type {wanted}"


def _check_base64(secret: Json) -> None:
    for value in (secret.get("data") or {}).values():
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error:
            why = "illegal base64 data at input byte 0"
            raise bad_request(
                f'Secret in version "v1" cannot be handled as a Secret: {why}'
            ) from None
