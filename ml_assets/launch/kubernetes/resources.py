"""The official client's methods by resource, and its answers as they come: JSON, or lines."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from ml_assets.errors import ClusterRefused
from ml_assets.launch.kubernetes.calls import broken_by
from ml_assets.launch.kubernetes.observations import Json

Watched = Literal["jobs", "pods"]
Listed = Literal["jobs", "pods", "services"]
LOG_SILENCE_SECONDS = 600.0
TIMEOUT = (10.0, 60.0)
"""Seconds to connect, and between two bytes of an answer."""
RAW = {"_preload_content": False, "_request_timeout": TIMEOUT}
"""Options of each call: its JSON, not the client's models."""


@dataclass(frozen=True)
class ObjectList:
    """All objects of a kind, and the version from which a watch goes on."""

    items: Sequence[Json]
    version: str


class Lines:
    """The lines of an answer that goes on; ``close`` ends it, from any thread."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        """Lines without their ends; one that broke off is dropped.

        Raises:
            NoAnswer, SilentStream: it broke off.
        """
        rest = b""
        try:
            for chunk in self._response.stream(amt=None, decode_content=False):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
            if rest:
                yield rest
        except Exception as error:
            if self._closed:  # by us: whatever the client makes of that
                return
            told = broken_by(error)
            if told is None:
                raise
            raise told from error

    def close(self) -> None:
        """End it; whoever is reading finds the end."""
        self._closed = True
        with suppress(Exception):  # it may have ended by itself
            self._response.shutdown()
        with suppress(Exception):
            self._response.close()


def batch(client: Any) -> Any:
    """Jobs."""
    from kubernetes.client import BatchV1Api

    return BatchV1Api(client)


def core(client: Any) -> Any:
    """Pods, their logs, Services and events."""
    from kubernetes.client import CoreV1Api

    return CoreV1Api(client)


def authorization(client: Any) -> Any:
    """The API that says what we may do."""
    from kubernetes.client import AuthorizationV1Api

    return AuthorizationV1Api(client)


def extensions(client: Any) -> Any:
    """The API of what is not Kubernetes's own: Kueue's workloads and queues."""
    from kubernetes.client import CustomObjectsApi

    return CustomObjectsApi(client)


def lister(client: Any, kind: Listed) -> Callable[..., Any]:
    """Lists, or watches."""
    match kind:
        case "jobs":
            return batch(client).list_namespaced_job
        case "pods":
            return core(client).list_namespaced_pod
        case "services":
            return core(client).list_namespaced_service


def deleter(client: Any, kind: Listed) -> Callable[..., Any]:
    """Deletes one by its name."""
    match kind:
        case "jobs":
            return batch(client).delete_namespaced_job
        case "pods":
            return core(client).delete_namespaced_pod
        case "services":
            return core(client).delete_namespaced_service


def decoded(answer: Any) -> Any:
    """Return what a call with ``RAW`` answered."""
    return json.loads(answer.data)


def streaming(silence: float) -> dict[str, Any]:
    """Options of a call whose answer goes on, with pauses of so many seconds at most."""
    return {"_preload_content": False, "_request_timeout": (TIMEOUT[0], silence)}


@contextmanager
def taking_for_done(*statuses: int) -> Iterator[None]:
    """Take answers for success that say that it is so already, or that there is nothing."""
    try:
        yield
    except ClusterRefused as refused:
        if refused.status not in statuses:
            raise
