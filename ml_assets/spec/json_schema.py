"""Looks up what a place of a document may hold, in the JSON schema of its model."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel

_Schemas = list[Mapping[str, Any]]


def fields_at(location: Sequence[str | int], model: type[BaseModel]) -> set[str]:
    """The keys that a place of the spec may hold; ``location`` as pydantic gives it, with tags."""
    return {name for one in _schemas_at(location, model) for name in one.get("properties", {})}


def sections_with(name: str, model: type[BaseModel]) -> list[str]:
    """The sections at the top of a spec that may hold a key."""
    return sorted(top for top in fields_at((), model) if name in fields_at((top,), model))


def default_at(location: Sequence[str | int], model: type[BaseModel]) -> object:
    """What a field is that is left out; None: it is needed, or nothing."""
    defaults = (one["default"] for one in _schemas_at(location, model) if "default" in one)
    return next(defaults, None)


def _schemas_at(location: Sequence[str | int], model: type[BaseModel]) -> _Schemas:
    schema = _schema(model)
    here: _Schemas = [schema]
    for part in location:
        here = [below for one in here for below in _below(one, part, schema.get("$defs", {}))]
    return here


@cache
def _schema(model: type[BaseModel]) -> Mapping[str, Any]:
    return model.model_json_schema(by_alias=True)


def _below(one: Mapping[str, Any], part: str | int, defs: Mapping[str, Any]) -> _Schemas:
    """The JSON schemas of what lies at a key, a place of a list, or under the tag of a union."""
    tagged = one.get("discriminator", {}).get("mapping", {})
    if part in tagged:
        return _resolved({"$ref": tagged[part]}, defs)
    found = one.get("items") if isinstance(part, int) else one.get("properties", {}).get(part)
    named = one.get("patternProperties", {}).values()  # keys that people choose
    found = found or next(iter(named), one.get("additionalProperties"))
    return _resolved(found, defs) if isinstance(found, dict) else []


def _resolved(one: Mapping[str, Any], defs: Mapping[str, Any]) -> _Schemas:
    """A schema without references; of a union whose members have no tag, all of them."""
    if "$ref" in one:
        return _resolved(defs[one["$ref"].rpartition("/")[2]], defs)
    members = one.get("anyOf", []) if "discriminator" not in one else []
    return [one, *(found for member in members for found in _resolved(member, defs))]
