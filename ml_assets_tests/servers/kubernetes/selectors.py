"""Label and field selectors, as the query parameters write them."""

import re
from typing import Any

from ml_assets_tests.servers.kubernetes.errors import Json, bad_request

_SET = re.compile(r"^\s*(\S+)\s+(in|notin)\s+\(([^)]*)\)\s*$")
_SPLIT = re.compile(r",(?![^(]*\))")
_EQUAL = re.compile(r"^\s*([^=!\s]+)\s*(==|=|!=)\s*(\S*)\s*$")

Requirement = tuple[str, str, tuple[str, ...]]
"""(key, operator, values); operator is one of in, notin, exists, absent."""

_FIELDS = {
    "pods": ("spec.nodeName", "spec.restartPolicy", "status.phase", "status.podIP"),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "type",
        "reportingComponent",
        "source",
    ),
    "jobs": ("status.successful",),
    "secrets": ("type",),
    "namespaces": ("status.phase",),
    "nodes": ("spec.unschedulable",),
}


def labels_of(text: str) -> list[Requirement]:
    """Parse a label selector; an empty one selects all."""
    return [_requirement(part) for part in _SPLIT.split(text) if part.strip()]


def _requirement(part: str) -> Requirement:
    if among := _SET.match(part):
        values = tuple(value.strip() for value in among[3].split(","))
        return among[1], among[2], values
    if equal := _EQUAL.match(part):
        return equal[1], "notin" if equal[2] == "!=" else "in", (equal[3],)
    word = part.strip()
    if re.fullmatch(r"![\w./-]+", word):
        return word[1:], "absent", ()
    if re.fullmatch(r"[\w./-]+", word):
        return word, "exists", ()
    raise bad_request(f"unable to parse requirement: {word!r} is no label selector")


def fields_of(text: str, plural: str) -> list[Requirement]:
    """Parse a field selector; only the fields that a real server indexes are supported."""
    known = ("metadata.name", "metadata.namespace", *_FIELDS.get(plural, ()))
    found = []
    for part in text.split(","):
        if not part.strip():
            continue
        equal = _EQUAL.match(part)
        if not equal:
            raise bad_request(f"invalid selector: {part!r}; can't understand {part!r}")
        if equal[1] not in known:
            message = f'Unable to find "{plural}" that match label selector "", field selector'
            raise bad_request(f'{message} "{text}": field label not supported: {equal[1]}')
        found.append((equal[1], "notin" if equal[2] == "!=" else "in", (equal[3],)))
    return found


def matches(labels: Json | None, requirements: list[Requirement]) -> bool:
    return all(_meets((labels or {}).get(key), how, want) for key, how, want in requirements)


def _meets(value: str | None, how: str, wanted: tuple[str, ...]) -> bool:
    if how == "exists":
        return value is not None
    if how == "absent":
        return value is None
    return (value in wanted) == (how == "in")


def fields_match(obj: Json, requirements: list[Requirement]) -> bool:
    return all(_meets(_field(obj, key), how, want) for key, how, want in requirements)


def _field(obj: Json, path: str) -> str:
    value: Any = obj
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, dict):  # an event's `source` stands for its component
        value = value.get("component")
    return "" if value is None else str(value)
