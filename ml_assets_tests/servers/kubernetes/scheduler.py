"""The scheduler: a node for each pod, or the reason why none fits, in a real scheduler's words."""

from collections import Counter
from decimal import Decimal

from ml_assets_tests.servers.kubernetes import quantities
from ml_assets_tests.servers.kubernetes.clock import stamp
from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.events import EventRecorder
from ml_assets_tests.servers.kubernetes.loop import Loop
from ml_assets_tests.servers.kubernetes.resources import NODES, PODS
from ml_assets_tests.servers.kubernetes.store import Change, Key, Store, key_of

_SOURCE = "default-scheduler"
_NO_VICTIMS = "No preemption victims found for incoming pod"
_NO_HELP = "Preemption is not helpful for scheduling"


class Scheduler:
    def __init__(self, store: Store, loop: Loop, events: EventRecorder) -> None:
        self._store = store
        self._loop = loop
        self._events = events

    def notice(self, change: Change) -> None:
        if change.resource is NODES:
            self._retry_all()
        elif change.resource is PODS:
            freed = change.type == "DELETED" or change.obj["status"].get("phase") in _ENDED
            if freed:
                self._retry_all()
            elif change.type == "ADDED" and _is_waiting(change.obj):
                key = key_of(change.obj)
                self._loop.soon(("schedule", key), lambda: self._schedule(key))

    def _retry_all(self) -> None:
        self._loop.soon("schedule all", self._schedule_all)

    def _schedule_all(self) -> None:
        for pod in self._store.all(PODS):
            if _is_waiting(pod):
                self._schedule(key_of(pod))

    def _schedule(self, key: Key) -> None:
        pod = self._store.find(PODS, *key)
        if pod is None or not _is_waiting(pod):
            return
        if pod["spec"].get("schedulingGates"):
            self._say_no(
                key,
                pod,
                "SchedulingGated",
                "Scheduling is blocked due to non-empty scheduling gates",
            )
            return
        nodes = self._store.all(NODES)
        reasons: Counter[str] = Counter()
        for node in nodes:
            why = self._why_not(pod, node)
            if not why:
                self._bind(key, pod, node["metadata"]["name"])
                return
            reasons.update(why)
        message = _message(len(nodes), reasons)
        self._say_no(key, pod, "Unschedulable", message)
        self._events.warning(pod, _SOURCE, "FailedScheduling", message)

    def _bind(self, key: Key, pod: Json, node: str) -> None:
        now = stamp(self._store.clock.now())

        def edit(new: Json) -> None:
            new["spec"]["nodeName"] = node
            others = [c for c in new["status"].get("conditions") or [] if c["type"] != _SCHEDULED]
            yes = {"type": _SCHEDULED, "status": "True", "lastTransitionTime": now}
            new["status"]["conditions"] = [*others, {**yes, "lastProbeTime": None}]

        self._store.change(PODS, *key, edit)
        where = f"{key[0]}/{key[1]}"
        message = f"Successfully assigned {where} to {node}"
        self._events.normal(pod, _SOURCE, "Scheduled", message)

    def _say_no(self, key: Key, pod: Json, reason: str, message: str) -> None:
        now = stamp(self._store.clock.now())
        before = pod["status"].get("conditions") or []
        if any(c["type"] == _SCHEDULED and c.get("message") == message for c in before):
            return

        def edit(new: Json) -> None:
            others = [c for c in before if c["type"] != _SCHEDULED]
            no = {
                "type": _SCHEDULED,
                "status": "False",
                "reason": reason,
                "message": message,
                "lastProbeTime": None,
                "lastTransitionTime": now,
            }
            new["status"]["conditions"] = [*others, no]

        self._store.change(PODS, *key, edit)

    def _why_not(self, pod: Json, node: Json) -> list[str]:
        """What keeps the pod from this node, the first cause; nothing where it fits."""
        spec = node.get("spec") or {}
        if spec.get("unschedulable"):
            return ["node(s) were unschedulable"]
        for taint in spec.get("taints") or []:
            if taint["effect"] != "PreferNoSchedule" and not tolerates(pod, taint):
                return [
                    f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
                ]
        if not _selected(pod, node):
            return ["node(s) didn't match Pod's node affinity/selector"]
        return self._lacking(pod, node)

    def _lacking(self, pod: Json, node: Json) -> list[str]:
        name, offered = node["metadata"]["name"], node["status"].get("allocatable") or {}
        used: quantities.Amounts = {}
        count = 0
        for other in self._store.all(PODS):
            if other["spec"].get("nodeName") == name and other["status"].get("phase") not in _ENDED:
                count += 1
                for what, amount in quantities.requests_of(other).items():
                    used[what] = used.get(what, Decimal(0)) + amount
        found = []
        if count >= quantities.read(offered.get("pods", 110)):
            found.append("Too many pods")
        for what, amount in sorted(quantities.requests_of(pod).items()):
            free = quantities.read(offered.get(what, 0)) - used.get(what, Decimal(0))
            if amount > free:
                found.append(f"Insufficient {what}")
        return found


_SCHEDULED = "PodScheduled"
_ENDED = ("Succeeded", "Failed")


def _is_waiting(pod: Json) -> bool:
    going = "deletionTimestamp" in pod["metadata"]
    return not pod["spec"].get("nodeName") and not going and pod["status"]["phase"] == "Pending"


def tolerates(pod: Json, taint: Json) -> bool:
    """Whether a pod, or a template of one, may go to a node with the taint."""
    for toleration in pod["spec"].get("tolerations") or []:
        if toleration.get("effect") not in (None, "", taint["effect"]):
            continue
        exists = toleration.get("operator") == "Exists"
        if not toleration.get("key") and exists:
            return True
        if toleration.get("key") == taint["key"] and (
            exists or toleration.get("value", "") == taint.get("value", "")
        ):
            return True
    return False


def _selected(pod: Json, node: Json) -> bool:
    labels = node["metadata"].get("labels") or {}
    wanted = pod["spec"].get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(_term(term, labels) for term in required.get("nodeSelectorTerms") or [])


def _term(term: Json, labels: Json) -> bool:
    return all(_expression(e, labels) for e in term.get("matchExpressions") or [])


def _expression(expression: Json, labels: Json) -> bool:
    value, among = labels.get(expression["key"]), expression.get("values") or []
    return {
        "In": value in among,
        "NotIn": value not in among,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[expression["operator"]]


def _message(nodes: int, reasons: Counter[str]) -> str:
    if not nodes:
        return "no nodes available to schedule pods"
    said = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    lacking = sum(n for reason, n in reasons.items() if reason.startswith(("Insuff", "Too many")))
    hopeless = sum(reasons.values()) - lacking
    helped = []
    if lacking:
        helped.append(f"{min(lacking, nodes)} {_NO_VICTIMS}")
    if hopeless:
        helped.append(f"{min(hopeless, nodes)} {_NO_HELP}")
    preemption = f"preemption: 0/{nodes} nodes are available: {', '.join(helped)}."
    return f"0/{nodes} nodes are available: {said}. {preemption}"


def node(
    name: str, cpu: str, memory: str, gpus: int, labels: dict[str, str], taints: list[Json]
) -> Json:
    """A Ready node with this much to give."""
    amounts = {"cpu": cpu, "memory": memory, "pods": "110", "ephemeral-storage": "1Ti"}
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
    spec = {"taints": taints} if taints else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": spec,
        "status": {
            "capacity": amounts,
            "allocatable": dict(amounts),
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "kubelet is posting ready status",
                }
            ],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "local processes"},
        },
    }
