"""Checks our rights in the namespace before anything is made there.

A training that may be started but not followed, or not ended, would be found out hours later.
"""

from dataclasses import dataclass
from typing import Any

from ml_assets.errors import AccessRefused
from ml_assets.launch.kubernetes.calls import ClusterCalls
from ml_assets.launch.kubernetes.resources import RAW, authorization, decoded, taking_for_done


@dataclass(frozen=True)
class Right:
    """A verb on a resource, in RBAC's words."""

    verb: str
    resource: str
    group: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


NEEDED = (
    *(Right(verb, "jobs", "batch") for verb in ("create", "get", "list", "watch", "delete")),
    *(Right(verb, "pods") for verb in ("list", "watch", "delete")),
    *(Right(verb, "services") for verb in ("create", "list", "delete")),
)
"""Those without which an attempt cannot be made, followed and cleared away. What the Role of
deploy/ grants beside them (logs, events, Kueue's queues) explains an end, and is no condition."""


def require_rights(calls: ClusterCalls, namespace: str) -> None:
    """Ask whether we may do all of that: one small call for each.

    Raises:
        AccessRefused: not all of it; what is missing is named.
        ClusterAway: no answer.
    """
    missing = [right for right in NEEDED if not _is_granted(calls, namespace, right)]
    if missing:
        raise AccessRefused(
            f"{calls.where} does not allow us to {', '.join(map(str, missing))} in namespace"
            f" {namespace}; nothing was begun. Check ML_ASSETS_NAMESPACE, and bind the Role"
            " training-launcher of deploy/base/roles.yaml to the account of KUBECONFIG: it has"
            " exactly the verbs that are needed.",
            403,
        )


def _is_granted(calls: ClusterCalls, namespace: str, right: Right) -> bool:
    """Whoever may not even ask is told by the call itself."""
    asked = {
        "namespace": namespace,
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
    }
    review = {"spec": {"resourceAttributes": asked}}

    def ask(client: Any) -> Any:
        return decoded(authorization(client).create_self_subject_access_review(review, **RAW))

    with taking_for_done(403, 404):
        return bool(calls.ask(f"ask whether we may {right}", ask)["status"]["allowed"])
    return True
