"""What a Job's pods mean for it: pure functions of the Job and its pods."""

from dataclasses import dataclass, field

from ml_assets_tests.servers.kubernetes.defaults import INDEX
from ml_assets_tests.servers.kubernetes.deletion import JOB_TRACKING
from ml_assets_tests.servers.kubernetes.errors import Json

TWO_OF_ONE_INDEX = "ml-assets.io/two-of-one-index"
"""Annotation of a pod that a test planted beside another: nobody removes it."""
TERMINAL = ("Succeeded", "Failed")


@dataclass
class Census:
    """A Job's pods by what they count for."""

    active: list[Json] = field(default_factory=list)
    terminating: list[Json] = field(default_factory=list)
    succeeded: list[Json] = field(default_factory=list)
    """Succeeded and not yet counted."""
    failed: list[Json] = field(default_factory=list)
    """Failed and not yet counted."""

    @property
    def ready(self) -> int:
        return sum(condition(pod["status"], "Ready") is not None for pod in self.active)


def condition(status: Json, kind: str) -> Json | None:
    """The condition of this type if it is true."""
    for found in status.get("conditions") or []:
        if found["type"] == kind and found["status"] == "True":
            return found
    return None


def finished(job: Json) -> bool:
    return any(condition(job["status"], kind) for kind in ("Complete", "Failed"))


def is_tracked(pod: Json) -> bool:
    return JOB_TRACKING in (pod["metadata"].get("finalizers") or [])


def index_of(pod: Json) -> int | None:
    """The completion index; None for a pod that has none (or one that is no number)."""
    said = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(said) if said.isdigit() else None


def census(job: Json, pods: list[Json]) -> Census:
    only_failed = job["spec"]["podReplacementPolicy"] == "Failed"
    found = Census()
    for pod in pods:
        phase, going = pod["status"].get("phase"), "deletionTimestamp" in pod["metadata"]
        if phase not in TERMINAL and not going:
            found.active.append(pod)
        elif phase not in TERMINAL:
            found.terminating.append(pod)
        if not is_tracked(pod):
            continue
        if phase == "Succeeded":
            found.succeeded.append(pod)
        elif phase == "Failed" or (going and not only_failed):
            found.failed.append(pod)
    return found


def indexes_of(text: str) -> set[int]:
    """`0,2-4` as numbers."""
    found: set[int] = set()
    for part in text.split(",") if text else []:
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def indexes_text(indexes: set[int]) -> str:
    """Numbers as `0,2-4`: two in a row are `0,1`, three are `0-2`, as a real server writes."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts = []
    for run in runs:
        between = "-" if len(run) > 2 else ","
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}{between}{run[-1]}")
    return ",".join(parts)


# --- the pod failure policy -----------------------------------------------------------------------


def verdict_of_policy(job: Json, pod: Json) -> tuple[str, str]:
    """What the first rule that matches a failed pod does, and why; Count where none does."""
    for i, rule in enumerate((job["spec"].get("podFailurePolicy") or {}).get("rules") or []):
        if codes := rule.get("onExitCodes"):
            why = _by_exit_codes(pod, codes)
        else:
            why = _by_conditions(pod, rule.get("onPodConditions") or [])
        if why:
            return rule["action"], f"{why} matching {rule['action']} rule at index {i}"
    return "Count", ""


def _by_exit_codes(pod: Json, codes: Json) -> str:
    status, meta = pod["status"], pod["metadata"]
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or []:
            ended = container["state"].get("terminated")
            if not ended or ended["exitCode"] == 0:
                continue
            if codes.get("containerName") not in (None, container["name"]):
                continue
            if (ended["exitCode"] in codes["values"]) == (codes["operator"] == "In"):
                return (
                    f"Container {container['name']} for pod {meta['namespace']}/{meta['name']}"
                    f" failed with exit code {ended['exitCode']}"
                )
    return ""


def _by_conditions(pod: Json, patterns: list[Json]) -> str:
    for found in pod["status"].get("conditions") or []:
        for pattern in patterns:
            if (found["type"], found["status"]) == (pattern["type"], pattern["status"]):
                meta = pod["metadata"]
                return f"Pod {meta['namespace']}/{meta['name']} has condition {found['type']}"
    return ""
