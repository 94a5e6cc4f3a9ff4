"""What an object must pass before it is kept: namespace, name, defaults, rules, quota."""

import re
import uuid
from decimal import Decimal

from ml_assets_tests.servers.kubernetes import (
    defaults,
    errors,
    pod_references,
    pod_security,
    quantities,
    validation,
)
from ml_assets_tests.servers.kubernetes.clock import stamp
from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.resources import (
    JOBS,
    NAMESPACES,
    PODS,
    QUOTAS,
    RESOURCES,
    Resource,
)
from ml_assets_tests.servers.kubernetes.store import Store

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUEUE = "kueue.x-k8s.io/queue-name"
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def create(store: Store, resource: Resource, obj: Json, dry_run: bool = False) -> Json:
    """Admit and keep a new object; with `dry_run` all but keep it."""
    with store.lock:
        _name(resource, obj)
        _check_namespace(store, resource, obj)
        defaults.fill(resource, obj)
        causes = _name_causes(resource, obj) + validation.causes_of(resource, obj)
        if causes:
            raise errors.invalid(resource.group, resource.kind, obj["metadata"]["name"], causes)
        if resource is JOBS and (obj["metadata"].get("labels") or {}).get(_QUEUE):
            obj["spec"]["suspend"] = True  # Kueue's webhook
        if resource is PODS:
            pod_references.check(store, obj)
            namespace = store.get(NAMESPACES, "", obj["metadata"]["namespace"])
            pod_security.check(namespace, obj)
            _check_quota(store, obj)
        elif store.find(resource, *_key(obj)) is None:
            _check_counts(store, resource, obj)
        return _keep(store, resource, obj, dry_run)


def _keep(store: Store, resource: Resource, obj: Json, dry_run: bool) -> Json:
    meta = obj["metadata"]
    for of_the_server in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"):
        meta.pop(of_the_server, None)
    meta["uid"] = str(uuid.uuid4())
    meta["creationTimestamp"] = stamp(store.clock.now())
    if "spec" in obj:
        meta["generation"] = 1
    if resource is JOBS:
        defaults.fill_job_uid(obj)
    if not dry_run:
        return store.create(resource, obj)
    if store.find(resource, *_key(obj)) is not None:
        raise errors.already_exists(resource.group, resource.plural, meta["name"])
    return obj


def _key(obj: Json) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _name(resource: Resource, obj: Json) -> None:
    meta = obj["metadata"]
    if not meta.get("name"):
        if not meta.get("generateName"):
            cause = ("FieldValueRequired", "metadata.name", _NAME_REQUIRED)
            raise errors.invalid(resource.group, resource.kind, "", [cause])
        meta["name"] = defaults.generated(meta["generateName"])


_NAME_REQUIRED = "Required value: name or generateName is required"


def _check_namespace(store: Store, resource: Resource, obj: Json) -> None:
    if not resource.namespaced:
        return
    name = obj["metadata"]["namespace"]
    namespace = store.get(NAMESPACES, "", name)
    if namespace["status"]["phase"] == "Terminating":
        why = f"unable to create new content in namespace {name} because it is being terminated"
        raise errors.forbidden(resource.group, resource.plural, obj["metadata"]["name"], why)


def _name_causes(resource: Resource, obj: Json) -> list[errors.Cause]:
    name = obj["metadata"]["name"]
    form, limit, kind = _SUBDOMAIN, 253, "a lowercase RFC 1123 subdomain"
    if resource.kind == "Service":
        form, limit, kind = _SERVICE, 63, "a DNS-1035 label"
    elif resource.kind == "Namespace":
        form, limit, kind = _LABEL, 63, "a lowercase RFC 1123 label"
    found: list[errors.Cause] = []
    if len(name) > limit:
        message = f'Invalid value: "{name}": must be no more than {limit} characters'
        found.append(("FieldValueInvalid", "metadata.name", message))
    if not form.fullmatch(name):
        message = (
            f'Invalid value: "{name}": {kind} must consist of lower case alphanumeric characters'
            f" or '-', and must start and end with an alphanumeric character (e.g. 'my-name',"
            f" regex used for validation is '{form.pattern}')"
        )
        found.append(("FieldValueInvalid", "metadata.name", message))
    return found


# --- quota ----------------------------------------------------------------------------------------


def counted(store: Store, namespace: str, hard: Json) -> quantities.Amounts:
    """How many objects there are of each kind that a quota limits by number, pods apart."""
    found: quantities.Amounts = {}
    for resource in RESOURCES:
        if resource.namespaced and resource is not PODS:
            for name in {f"count/{resource.qualified}", resource.plural} & set(hard):
                found[name] = Decimal(len(store.all(resource, namespace)))
    return found


def _check_counts(store: Store, resource: Resource, obj: Json) -> None:
    """Object-count quotas of everything but pods: `count/jobs.batch`, `services`."""
    namespace = obj["metadata"].get("namespace", "")
    own = (f"count/{resource.qualified}", resource.plural)
    for quota in store.all(QUOTAS, namespace) if namespace else []:
        used = counted(store, namespace, quota["spec"].get("hard") or {})
        asked = {name: Decimal(1) for name in own if name in used}
        _refuse_over(resource, obj, quota, asked, used)


def _check_quota(store: Store, pod: Json) -> None:
    namespace = pod["metadata"]["namespace"]
    for quota in store.all(QUOTAS, namespace):
        asked = quota_amounts(pod)
        hard = quota["spec"].get("hard") or {}
        missing = sorted(
            name
            for name in hard
            if name not in asked and name.rpartition(".")[2] in ("cpu", "memory")
        )
        if missing:
            why = (
                f"failed quota: {quota['metadata']['name']}: must specify {_for_each(pod, missing)}"
            )
            raise errors.forbidden("", "pods", pod["metadata"]["name"], why)
        _refuse_over(PODS, pod, quota, asked, quota_used(store, namespace))


def _for_each(pod: Json, names: list[str]) -> str:
    containers = ",".join(container["name"] for container in pod["spec"]["containers"])
    return "; ".join(f"{name} for: {containers}" for name in names)


def quota_amounts(pod: Json) -> quantities.Amounts:
    """What a pod counts for, by the names that a quota uses."""
    amounts: quantities.Amounts = {"pods": Decimal(1), "count/pods": Decimal(1)}
    for name, amount in quantities.requests_of(pod).items():
        amounts[f"requests.{name}"] = amount
        if name in ("cpu", "memory", "ephemeral-storage"):
            amounts[name] = amount
    for name, amount in quantities.limits_of(pod).items():
        amounts[f"limits.{name}"] = amount
    return amounts


def quota_used(store: Store, namespace: str) -> quantities.Amounts:
    used: quantities.Amounts = {}
    for pod in store.all(PODS, namespace):
        if pod["status"].get("phase") not in ("Succeeded", "Failed"):
            for name, amount in quota_amounts(pod).items():
                used[name] = used.get(name, Decimal(0)) + amount
    return used


def _refuse_over(
    resource: Resource,
    obj: Json,
    quota: Json,
    asked: quantities.Amounts,
    used: quantities.Amounts,
) -> None:
    hard = quota["spec"].get("hard") or {}
    over = sorted(
        name
        for name, limit in hard.items()
        if name in asked and used.get(name, Decimal(0)) + asked[name] > quantities.read(limit)
    )
    if not over:
        return

    def said(amounts: dict[str, str]) -> str:
        return ",".join(f"{name}={amounts[name]}" for name in over)

    wanted = {name: quantities.write(asked[name]) for name in over}
    taken = {name: quantities.write(used.get(name, Decimal(0))) for name in over}
    why = (
        f"exceeded quota: {quota['metadata']['name']}, requested: {said(wanted)},"
        f" used: {said(taken)}, limited: {said({name: str(hard[name]) for name in over})}"
    )
    raise errors.forbidden(resource.group, resource.plural, obj["metadata"]["name"], why)
