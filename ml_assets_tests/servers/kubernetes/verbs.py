"""What each verb does to the store: get, list, create, update, patch, delete, and subresources."""

import base64
import json
from collections.abc import Callable

from ml_assets_tests.servers.kubernetes import (
    admission,
    decoding,
    deletion,
    errors,
    patches,
    resources,
    selectors,
    validation,
)
from ml_assets_tests.servers.kubernetes.clock import stamp
from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.requests import Request
from ml_assets_tests.servers.kubernetes.resources import JOBS, NAMESPACES, PODS
from ml_assets_tests.servers.kubernetes.store import Store, clone, key_of

Answer = tuple[int, Json]


def answer(store: Store, request: Request) -> Answer:
    """Carry out a call that is no watch and no log."""
    verbs: dict[str, Callable[[Store, Request], Answer]] = {
        "get": get,
        "list": listing,
        "create": create,
        "update": update,
        "patch": patch,
        "delete": delete,
        "deletecollection": delete_all,
    }
    if request.verb not in request.resource.verbs:
        raise errors.method_not_allowed()
    return verbs[request.verb](store, request)


def get(store: Store, request: Request) -> Answer:
    return 200, store.get(request.resource, request.namespace, request.name)


def listing(store: Store, request: Request) -> Answer:
    """A list at one version, in pages where a limit is given."""
    resource, query = request.resource, request.query
    labels = selectors.labels_of(query.get("labelSelector", ""))
    fields = selectors.fields_of(query.get("fieldSelector", ""), resource.plural)
    limit = request.number("limit")
    with store.lock:
        version, start = store.version, None
        if token := query.get("continue"):
            version, start = _read_token(token)
            if version < store.compacted:
                raise errors.expired(
                    "The provided continue parameter is too old to display a consistent list"
                    " result. You must start a new list without the continue parameter."
                )
        elif query.get("resourceVersionMatch") == "Exact":
            version = request.number("resourceVersion")
        elif request.number("resourceVersion") > version:
            message = f"Too large resource version: {query['resourceVersion']}, current: {version}"
            raise errors.ApiError(504, "Timeout", message, wait=1)
        found = store.all_at(resource, request.namespace, version)
    chosen = [
        obj
        for obj in found
        if selectors.matches(obj["metadata"].get("labels"), labels)
        and selectors.fields_match(obj, fields)
        and (start is None or key_of(obj) > start)
    ]
    meta: Json = {"resourceVersion": str(version)}
    if limit and len(chosen) > limit:
        meta["continue"] = _token(version, chosen[limit - 1])
        if not labels and not fields:
            meta["remainingItemCount"] = len(chosen) - limit
        chosen = chosen[:limit]
    items = chosen if resource.is_custom else [_bare(obj) for obj in chosen]
    kind = f"{resource.kind}List"
    body = {"kind": kind, "apiVersion": resource.api_version, "metadata": meta, "items": items}
    return 200, body


def _bare(obj: Json) -> Json:
    """In lists of built-in kinds an item does not say what it is."""
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


def _token(version: int, last: Json) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": key_of(last)})
    return base64.urlsafe_b64encode(text.encode()).decode()


def _read_token(token: str) -> tuple[int, tuple[str, str]]:
    try:
        said = json.loads(base64.urlsafe_b64decode(token))
        return int(said["rv"]), (said["start"][0], said["start"][1])
    except (ValueError, KeyError, IndexError, TypeError):
        raise errors.bad_request("continue key is not valid") from None


# --- writing --------------------------------------------------------------------------------------


def create(store: Store, request: Request) -> Answer:
    if request.resource is PODS and request.subresource == "eviction":
        return evict(store, request)
    if request.name:
        raise errors.method_not_allowed()
    obj = _body(request)
    if request.resource.namespaced:
        named = obj["metadata"].setdefault("namespace", request.namespace)
        if named != request.namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the"
                " request"
            )
    return 201, admission.create(store, request.resource, obj, request.dry_run)


def _body(request: Request) -> Json:
    obj, resource = request.body, request.resource
    if not isinstance(obj, dict):
        raise errors.bad_request("the object provided is unrecognized: it is no object")
    said = (obj.get("apiVersion", resource.api_version), obj.get("kind", resource.kind))
    if resources.of_kind(*said) is not resource:
        raise errors.bad_request(
            f"the API version and kind in the data ({said[0]}, {said[1]}) does not match the"
            f" expected ({resource.api_version}, {resource.kind})"
        )
    obj = _decoded(request, clone(obj))
    obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
    meta = obj.setdefault("metadata", {})
    if not isinstance(meta, dict):
        raise errors.bad_request("metadata is no object")
    if resource.plural in ("pods", "jobs", "services", "resourcequotas"):
        obj.setdefault("spec", {})
    return obj


def _decoded(request: Request, obj: Json) -> Json:
    """Unknown fields are dropped with a warning, or refused where the caller is strict."""
    found, unknown = decoding.decode(request.resource, obj)
    if unknown and request.query.get("fieldValidation") == "Strict":
        raise errors.bad_request(f"strict decoding error: {', '.join(unknown)}")
    if request.query.get("fieldValidation") != "Ignore":
        request.warnings.extend(unknown)
    return found


def update(store: Store, request: Request) -> Answer:
    obj = _body(request)
    if obj["metadata"].get("name") != request.name:
        raise errors.bad_request("the name of the object does not match the name on the URL")
    if request.resource.namespaced:
        obj["metadata"]["namespace"] = request.namespace
    with store.lock:
        old = store.get(request.resource, request.namespace, request.name)
        return 200, _keep(store, request, old, obj)


def patch(store: Store, request: Request) -> Answer:
    with store.lock:
        old = store.get(request.resource, request.namespace, request.name)
        new = _decoded(request, patches.apply(old, request.body, request.media))
        new["apiVersion"], new["kind"] = old["apiVersion"], old["kind"]
        return 200, _keep(store, request, old, new)


def _keep(store: Store, request: Request, old: Json, new: Json) -> Json:
    """Keep what the caller may change, check it, and leave the rest as it was."""
    resource, meta, before = request.resource, new["metadata"], old["metadata"]
    if meta.get("uid", before["uid"]) != before["uid"]:
        why = (
            f"Precondition failed: UID in precondition: {meta['uid']},"
            f" UID in object meta: {before['uid']}"
        )
        raise errors.conflict(resource.group, resource.plural, request.name, why)
    for field in _OF_THE_SERVER:
        if field in before:
            meta[field] = before[field]
        else:
            meta.pop(field, None)
    if request.subresource == "status":
        new = {**clone(old), "status": new.get("status", {})}
        new["metadata"]["resourceVersion"] = meta.get("resourceVersion", "")
    elif "status" in old:
        new["status"] = clone(old["status"])
    added = set(meta.get("finalizers") or []) - set(before.get("finalizers") or [])
    if "deletionTimestamp" in before and added:
        why = "Forbidden: no new finalizers can be added if the object is being deleted"
        cause = ("FieldValueForbidden", "metadata.finalizers", why)
        raise errors.invalid(resource.group, resource.kind, request.name, [cause])
    if resource is JOBS:
        causes = validation.job_update_causes(old, new)
    else:
        causes = validation.causes_of(resource, new)
    if causes:
        raise errors.invalid(resource.group, resource.kind, request.name, causes)
    if request.dry_run:
        return new
    return store.replace(resource, new)


_OF_THE_SERVER = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)


# --- deleting -------------------------------------------------------------------------------------


def _options(request: Request) -> Json:
    body = request.body if isinstance(request.body, dict) else {}
    options = {key: value for key, value in body.items() if value is not None}
    query = request.query
    if query.get("propagationPolicy"):
        options["propagationPolicy"] = query["propagationPolicy"]
    if query.get("gracePeriodSeconds"):
        options["gracePeriodSeconds"] = request.number("gracePeriodSeconds")
    return options


def delete(store: Store, request: Request) -> Answer:
    resource = request.resource
    if request.dry_run:
        return 200, store.get(resource, request.namespace, request.name)
    if resource is NAMESPACES:
        return 200, _end_namespace(store, request.name)
    key = (request.namespace, request.name)
    obj, gone = deletion.delete(store, resource, key, _options(request))
    if resource is PODS or not gone:
        return 200, obj
    details = {
        "name": request.name,
        "kind": resource.plural,
        "uid": obj["metadata"]["uid"],
        **({"group": resource.group} if resource.group else {}),
    }
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return 200, {**status, "details": details}


def _end_namespace(store: Store, name: str) -> Json:
    """A namespace is Terminating until all that is in it is gone; `Namespaces` sees to that."""
    store.get(NAMESPACES, "", name)

    def edit(new: Json) -> None:
        new["metadata"].setdefault("deletionTimestamp", stamp(store.clock.now()))
        new["metadata"]["finalizers"] = ["kubernetes"]
        new["status"] = {"phase": "Terminating"}

    found = store.change(NAMESPACES, "", name, edit)
    assert found is not None
    return found


def delete_all(store: Store, request: Request) -> Answer:
    _, found = listing(store, request)
    for obj in found["items"] if not request.dry_run else []:
        try:
            deletion.delete(store, request.resource, key_of(obj), _options(request))
        except errors.ApiError as error:
            if error.code != 404:
                raise
    return 200, found


def evict(store: Store, request: Request) -> Answer:
    """The Eviction API: DisruptionTarget, then an ordinary deletion."""
    body = request.body if isinstance(request.body, dict) else {}
    key = (request.namespace, request.name)
    with store.lock:
        pod = store.get(PODS, *key)
        options = body.get("deleteOptions") or {}
        if request.dry_run:
            return 201, _SUCCESS
        if pod["status"].get("phase") not in ("Succeeded", "Failed"):
            disrupt(store, pod, "EvictionByEvictionAPI", "Eviction API: evicting")
        deletion.delete(store, PODS, key, options)
    return 201, _SUCCESS


_SUCCESS: Json = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}


def disrupt(store: Store, pod: Json, reason: str, message: str) -> None:
    """Give a pod the condition that says: not its own fault."""

    def edit(new: Json) -> None:
        others = [c for c in new["status"].get("conditions") or [] if c["type"] != _DISRUPTED]
        condition = {
            "type": _DISRUPTED,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": stamp(store.clock.now()),
        }
        new["status"]["conditions"] = [*others, condition]

    store.change(PODS, *key_of(pod), edit)


_DISRUPTED = "DisruptionTarget"
