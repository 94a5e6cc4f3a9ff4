"""What a container's process is given: its command, environment, and local stand-ins for
mounts and for the names of its Job's pods."""

import base64
import random
import re
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.resources import CONFIG_MAPS, SECRETS, Resource
from ml_assets_tests.servers.kubernetes.store import Store

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_MAPPED_PORTS = range(20_000, 32_000)
"""Below the range that a system hands out by itself: nothing takes them in between."""


class ConfigError(Exception):
    """The container cannot be made: `CreateContainerConfigError` with this message."""


def expand(text: str, known: dict[str, str]) -> str:
    """Kubernetes' own `$(NAME)`; an unknown name stays as it is, `$$` is one dollar sign."""

    def put(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return known.get(found[1], found[0])

    return _REFERENCE.sub(put, text)


def variables_of(
    store: Store, pod: Json, container: Json, localise: Callable[[str], str]
) -> dict[str, str]:
    """The container's environment; `localise` is applied to what is written in the manifest."""
    namespace = pod["metadata"]["namespace"]
    found: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        prefix = source.get("prefix", "")
        for reference, kind in (("secretRef", SECRETS), ("configMapRef", CONFIG_MAPS)):
            if ref := source.get(reference):
                data = data_of(store, kind, namespace, ref["name"], bool(ref.get("optional")))
                found |= {prefix + key: value.decode() for key, value in (data or {}).items()}
    for variable in container.get("env") or []:
        name = variable["name"]
        if source := variable.get("valueFrom"):
            value = _value_from(store, pod, container, source)
            if value is not None:
                found[name] = value
        else:
            found[name] = localise(expand(variable.get("value") or "", found))
    return found


def _value_from(store: Store, pod: Json, container: Json, source: Json) -> str | None:
    if field := source.get("fieldRef"):
        return field_of(pod, field["fieldPath"])
    if resource := source.get("resourceFieldRef"):
        kind, _, name = resource["resource"].partition(".")
        return str(((container.get("resources") or {}).get(kind) or {}).get(name, "0"))
    for reference, kind in (("secretKeyRef", SECRETS), ("configMapKeyRef", CONFIG_MAPS)):
        if ref := source.get(reference):
            optional = bool(ref.get("optional"))
            data = data_of(store, kind, pod["metadata"]["namespace"], ref["name"], optional)
            if data is None or ref["key"] not in data:
                if optional:
                    return None
                where = f"{pod['metadata']['namespace']}/{ref['name']}"
                raise ConfigError(f"couldn't find key {ref['key']} in {kind.kind} {where}")
            return data[ref["key"]].decode()
    return None


def data_of(
    store: Store, kind: Resource, namespace: str, name: str, optional: bool
) -> dict[str, bytes] | None:
    """A Secret's or ConfigMap's keys; None where it is missing and may be."""
    found = store.find(kind, namespace, name)
    if found is None:
        if optional:
            return None
        raise ConfigError(f'{kind.kind.lower()} "{name}" not found')
    data = found.get("data") or {}
    if kind is SECRETS:
        return {key: base64.b64decode(value) for key, value in data.items()}
    return {key: value.encode() for key, value in data.items()}


def field_of(pod: Json, path: str) -> str:
    """The downward API's fields."""
    if indexed := re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path):
        return str((pod["metadata"].get(indexed[1]) or {}).get(indexed[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        pairs = (pod["metadata"].get(path.partition(".")[2]) or {}).items()
        return "\n".join(f'{key}="{value}"' for key, value in sorted(pairs))
    value = pod
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value is None else str(value)


# --- mounts and names -----------------------------------------------------------------------------


class Ports:
    """A free local port for each port that the pods of one Job agree on."""

    def __init__(self) -> None:
        self._ports: dict[tuple[str, int], int] = {}

    def local(self, job: str, port: int) -> int:
        key = (job, port)
        if key not in self._ports:
            self._ports[key] = self._free()
        return self._ports[key]

    def _free(self) -> int:
        taken = set(self._ports.values())
        while True:
            port = random.choice(_MAPPED_PORTS)
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            if port not in taken:
                return port


@dataclass(frozen=True)
class Localiser:
    """Rewrites the strings of a manifest so that they are true on this machine."""

    mounts: dict[str, Path]
    """Mount path -> the folder that stands for it."""
    service: str
    """The pod's subdomain; empty: no names to rewrite."""
    job: str
    namespace: str
    port: Callable[[int], int]

    def __call__(self, text: str) -> str:
        return self._names(self._paths(text))

    def _paths(self, text: str) -> str:
        for path in sorted(self.mounts, key=len, reverse=True):
            form = rf"(?<![\w.\-/]){re.escape(path.rstrip('/'))}(?=$|[/\s:,;'\")\]])"
            text = re.sub(form, lambda _, to=path: str(self.mounts[to]), text)
        return text

    def _names(self, text: str) -> str:
        if not self.service:
            return text
        domain = rf"(?:\.{re.escape(self.namespace)}(?:\.svc(?:\.cluster\.local)?)?)?\.?"
        form = (
            rf"\b{re.escape(self.job)}-(\d+)\.{re.escape(self.service)}{domain}(?::(\d+))?(?![\w-])"
        )

        def local(found: re.Match[str]) -> str:
            host = address(int(found[1]))
            return f"{host}:{self.port(int(found[2]))}" if found[2] else host

        return re.sub(form, local, text)


def address(index: int) -> str:
    """The pod of an index, by number: index 0 sorts first, as `<job>-0` does."""
    if sys.platform == "linux" and index < 254:
        return f"127.0.0.{index + 1}"
    return "127.0.0.1"
