"""One request, read: which resource, which verb, which parameters."""

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import yaml

from ml_assets_tests.servers.kubernetes import errors, resources
from ml_assets_tests.servers.kubernetes.access import Wish
from ml_assets_tests.servers.kubernetes.resources import Resource

_TRUE = ("1", "t", "T", "true", "TRUE", "True")
"""What Go reads as true; the official client writes `True`."""


@dataclass(frozen=True)
class Request:
    method: str
    resource: Resource
    version: str
    namespace: str
    name: str
    subresource: str
    query: dict[str, str]
    body: Any
    media: str
    """The content type of the body, without parameters."""
    accept: str
    warnings: list[str] = field(default_factory=list)
    """What the answer warns of, in headers."""

    def number(self, name: str) -> int:
        """A parameter that is a number; 0 where it is missing."""
        said = self.query.get(name) or "0"
        if not said.isdigit():
            raise errors.bad_request(f'invalid value for "{name}": "{said}" is no number')
        return int(said)

    def flag(self, name: str) -> bool:
        return is_true(self.query.get(name))

    @property
    def dry_run(self) -> bool:
        said = self.query.get("dryRun") or ""
        if not said and isinstance(self.body, dict) and self.method == "DELETE":
            said = (self.body.get("dryRun") or [""])[0]
        if said not in ("", "All"):
            cause = ("FieldValueNotSupported", "dryRun", f'Unsupported value: "{said}"')
            raise errors.invalid("meta.k8s.io", "CreateOptions", "", [cause])
        return bool(said)

    @property
    def verb(self) -> str:
        if self.method == "GET":
            if self.flag("watch"):
                return "watch"
            return "get" if self.name else "list"
        if self.method == "DELETE":
            return "delete" if self.name else "deletecollection"
        return {"POST": "create", "PUT": "update", "PATCH": "patch"}[self.method]

    @property
    def wish(self) -> Wish:
        group, plural = self.resource.group, self.resource.plural
        return Wish(self.verb, group, plural, self.subresource, self.namespace, self.name)


def is_true(text: str | None) -> bool:
    return text in _TRUE


def query_of(target: str) -> tuple[str, dict[str, str]]:
    parts = urlsplit(target)
    return parts.path, dict(parse_qsl(parts.query, keep_blank_values=True))


def read(method: str, target: str, headers: dict[str, str], body: bytes) -> Request:
    """Parse a request for a resource; 404 for a path that names none."""
    path, query = query_of(target)
    words = [unquote(word) for word in path.strip("/").split("/")]
    if words[:1] == ["api"] and len(words) > 2:
        group, version, rest = "", words[1], words[2:]
    elif words[:1] == ["apis"] and len(words) > 3:
        group, version, rest = words[1], words[2], words[3:]
    else:
        raise errors.no_such_path()
    if rest[0] == "watch":  # the old form of ?watch=1
        rest, query = rest[1:], {**query, "watch": "true"}
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource = resources.find(group, version, rest[0])
    if resource is None or (namespace and not resource.namespaced) or len(rest) > 3:
        raise errors.no_such_path()
    name, subresource = [*rest[1:], "", ""][:2]
    if subresource and subresource not in resource.subresources:
        raise errors.no_such_path()
    media = headers.get("content-type", "").partition(";")[0].strip()
    return Request(
        method=method,
        resource=resource,
        version=version,
        namespace=namespace,
        name=name,
        subresource=subresource,
        query=query,
        body=_body(body, media),
        media=media,
        accept=headers.get("accept", ""),
    )


def _body(body: bytes, media: str) -> Any:
    if not body:
        return None
    try:
        if media.endswith("yaml"):
            return yaml.safe_load(body)
        if "protobuf" in media:
            raise errors.unsupported_media(media)
        return json.loads(body)
    except (ValueError, yaml.YAMLError) as error:
        raise errors.bad_request(f"the object provided is unrecognized: {error}") from None
