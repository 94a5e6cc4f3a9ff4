"""What docs/cluster.md lets the keys of training pods do, asked as S3 asks an IAM policy.

Tests whose programs run in pods give them keys of their own, which the S3 server holds to it.
"""

import base64
import json
import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

PODS = "pods"
"""Their access key."""
_PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
_PLACE = ("my-bucket", "ml-assets")
"""What the page calls the store: a bucket, and a prefix in it."""


@dataclass
class Rights:
    """The statements of a policy, and what was done by them."""

    statements: list[dict[str, Any]]
    used: set[tuple[str, str]] = field(default_factory=set)
    """(action, folder of the store); of the whole bucket, no folder."""

    def may(self, method: str, path: str, query: str) -> bool:
        """Whether a request is allowed: one for ``/bucket/key`` or ``/bucket``."""
        bucket, _, key = path.removeprefix("/").partition("/")
        asked = parse_qs(query, keep_blank_values=True)
        action, prefix = _action(method, key, asked), asked.get("prefix", [""])[0]
        allowed = any(_allows(one, action, f"{bucket}/{key}", prefix) for one in self.statements)
        if allowed:
            self.used.add((action, key.split("/")[1] if "/" in key else ""))
        return allowed

    @property
    def granted(self) -> set[tuple[str, str]]:
        """The same of all that is allowed."""
        return {
            (action, arn.split("/")[2] if arn.count("/") > 1 else "")
            for one in self.statements
            for action in _listed(one["Action"])
            for arn in _listed(one["Resource"])
        }


def rights_of_pods(place: str) -> Rights:
    """Those of the page, for a store at ``bucket/prefix``."""
    (policy,) = re.findall(r"```json\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    for known, own in zip(_PLACE, place.split("/"), strict=True):
        policy = policy.replace(known, own)
    return Rights(json.loads(policy)["Statement"])


def secret_of_pods(secret: str) -> dict[str, Any]:
    """The data of the Secret that pods are given, in place of the orchestrator's own keys."""
    keys = {"AWS_ACCESS_KEY_ID": PODS, "AWS_SECRET_ACCESS_KEY": secret}
    return {name: base64.b64encode(value.encode()).decode() for name, value in keys.items()}


def _action(method: str, key: str, asked: dict[str, list[str]]) -> str:
    """S3's reference: "Actions, resources, and condition keys for Amazon S3"."""
    if not key:
        named = {"list-type": "s3:ListBucket", "uploads": "s3:ListBucketMultipartUploads"}
        found = [action for word, action in named.items() if method == "GET" and word in asked]
        return found[0] if found else "another"
    if method == "DELETE":
        return "s3:AbortMultipartUpload" if "uploadId" in asked else "s3:DeleteObject"
    known = {"GET": "s3:GetObject", "HEAD": "s3:GetObject"}
    return (known | {"PUT": "s3:PutObject", "POST": "s3:PutObject"}).get(method, "another")


def _allows(statement: dict[str, Any], action: str, resource: str, prefix: str) -> bool:
    like = statement.get("Condition", {}).get("StringLike", {"s3:prefix": "*"})
    return (
        statement["Effect"] == "Allow"
        and action in _listed(statement["Action"])
        and any(
            fnmatchcase(f"arn:aws:s3:::{resource.rstrip('/')}", arn)
            for arn in _listed(statement["Resource"])
        )
        and fnmatchcase(prefix, like["s3:prefix"])
    )


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
