"""Claims about lists, watches, writes and refusals: true of our server and of a real cluster."""

import json
import uuid

import pytest
from kubernetes import client, watch
from kubernetes.client import ApiException

from ml_assets_tests.servers.kubernetes.cluster import TestCluster
from ml_assets_tests.servers.kubernetes.sample_jobs import Namespace, job, until


@pytest.fixture
def there(cluster: TestCluster) -> Namespace:
    return Namespace(cluster)


@pytest.fixture
def secrets(there):
    """Objects to list and to watch that nothing happens to by itself."""
    return [make_secret(there, f"s{i}", {"parity": str(i % 2), "claim": "api"}) for i in range(5)]


def make_secret(there, name, labels=None):
    body = {"metadata": {"name": name, "labels": labels or {"claim": "api"}}}
    return there.core.create_namespaced_secret(there.name, body)


def names(found):
    return [item.metadata.name for item in found.items]


def status_of(refused):
    """The body of a refusal."""
    return json.loads(refused.value.body)


OURS = "claim=api"
"""Every namespace of a real cluster holds other things, too."""


# --- lists ----------------------------------------------------------------------------------------


def test_a_list_is_chosen_by_labels_and_fields(there, secrets):
    listed = there.core.list_namespaced_secret
    assert names(listed(there.name, label_selector=f"{OURS},parity=0")) == ["s0", "s2", "s4"]
    assert names(listed(there.name, label_selector=f"{OURS},parity!=0")) == ["s1", "s3"]
    assert names(listed(there.name, label_selector=f"{OURS},parity in (1)")) == ["s1", "s3"]
    assert names(listed(there.name, label_selector=f"{OURS},!missing")) == names(
        listed(there.name, label_selector=OURS)
    )
    assert names(listed(there.name, field_selector="metadata.name=s3")) == ["s3"]


def test_a_field_that_is_not_indexed_is_refused(there):
    with pytest.raises(ApiException, match="field label not supported") as refused:
        there.core.list_namespaced_pod(there.name, field_selector="spec.hostname=x")
    assert refused.value.status == 400


def test_pages_of_a_list_show_one_moment(there, secrets):
    first = there.core.list_namespaced_secret(there.name, label_selector=OURS, limit=2)
    make_secret(there, "s9")
    token = first.metadata._continue
    rest = there.core.list_namespaced_secret(
        there.name, label_selector=OURS, limit=10, _continue=token
    )

    assert names(first) == ["s0", "s1"] and names(rest) == ["s2", "s3", "s4"]
    assert rest.metadata.resource_version == first.metadata.resource_version


# --- watches --------------------------------------------------------------------------------------


def events_of(there, version, count, **asked):
    """The next events of the secrets after a version."""
    follow, found = watch.Watch(), []
    for event in follow.stream(
        there.core.list_namespaced_secret,
        there.name,
        resource_version=version,
        timeout_seconds=20,
        **asked,
    ):
        found.append((event["type"], event["object"].metadata.name))
        if len(found) == count:
            follow.stop()
    return found


def test_a_watch_tells_all_that_came_after_a_version_in_order(there, secrets):
    start = there.core.list_namespaced_secret(there.name).metadata.resource_version
    make_secret(there, "new")
    there.core.patch_namespaced_secret("s1", there.name, {"metadata": {"labels": {"a": "b"}}})
    there.core.delete_namespaced_secret("s0", there.name)

    told = events_of(there, start, 3, label_selector=OURS)

    assert told == [("ADDED", "new"), ("MODIFIED", "s1"), ("DELETED", "s0")]


def test_an_object_that_no_longer_fits_the_selector_is_deleted_for_the_watch(there, secrets):
    start = there.core.list_namespaced_secret(there.name).metadata.resource_version
    for parity in ("0", "1"):
        body = {"metadata": {"labels": {"parity": parity}}}
        there.core.patch_namespaced_secret("s1", there.name, body)

    told = events_of(there, start, 2, label_selector=f"{OURS},parity=1")

    assert told == [("DELETED", "s1"), ("ADDED", "s1")]


def test_a_watch_without_a_version_begins_with_what_is_there(there, secrets):
    told = events_of(there, None, 5, label_selector=OURS)
    assert sorted(told) == [("ADDED", f"s{i}") for i in range(5)]


def test_a_watch_ends_when_its_time_is_over_and_a_bookmark_says_where(there, secrets):
    answer = there.core.list_namespaced_secret(
        there.name,
        watch=True,
        allow_watch_bookmarks=True,
        resource_version=there.core.list_namespaced_secret(there.name).metadata.resource_version,
        timeout_seconds=1,
        _preload_content=False,
    )
    lines = [json.loads(line) for line in b"".join(answer.stream()).splitlines()]
    assert all(line["type"] == "BOOKMARK" for line in lines)
    assert all(line["object"]["metadata"]["resourceVersion"] for line in lines)


# --- writes ---------------------------------------------------------------------------------------


def test_a_name_that_is_taken_is_a_409(cluster, there):
    there.create(job(cluster, "pass", suspend=True))
    with pytest.raises(ApiException) as refused:
        there.create(job(cluster, "pass", suspend=True))
    assert refused.value.status == 409
    body = status_of(refused)
    assert (body["reason"], body["message"]) == (
        "AlreadyExists",
        'jobs.batch "claim" already exists',
    )
    assert body["details"] == {"name": "claim", "group": "batch", "kind": "jobs"}


def test_an_update_from_an_old_version_is_a_conflict(there, secrets):
    mine = there.core.read_namespaced_secret("s0", there.name)
    there.core.patch_namespaced_secret("s0", there.name, {"metadata": {"labels": {"a": "b"}}})
    mine.metadata.labels = {"mine": "yes"}

    with pytest.raises(ApiException, match="the object has been modified") as refused:
        there.core.replace_namespaced_secret("s0", there.name, mine)

    assert refused.value.status == 409 and status_of(refused)["reason"] == "Conflict"


def test_a_merge_patch_sets_and_removes(there, secrets):
    body = {"metadata": {"labels": {"parity": None, "new": "yes"}}}
    done = there.core.patch_namespaced_secret("s0", there.name, body)
    assert done.metadata.labels == {"claim": "api", "new": "yes"}


def test_a_json_patch_is_a_list_of_operations(there, secrets):
    body = [{"op": "replace", "path": "/metadata/labels/parity", "value": "7"}]
    assert there.core.patch_namespaced_secret("s0", there.name, body).metadata.labels == {
        "claim": "api",
        "parity": "7",
    }


def test_a_strategic_patch_merges_lists_by_their_key(there):
    first = {"name": "first", "port": 80}
    service = {"metadata": {"name": "claim"}, "spec": {"ports": [first]}}
    there.core.create_namespaced_service(there.name, service)
    try:
        for body in (
            {"metadata": {"finalizers": ["test/f1"]}},
            {"metadata": {"finalizers": ["test/f2"]}},
            {"spec": {"ports": [{"name": "second", "port": 443}]}},
        ):
            there.core.api_client.call_api(
                f"/api/v1/namespaces/{there.name}/services/claim",
                "PATCH",
                header_params={"Content-Type": "application/strategic-merge-patch+json"},
                body=body,
                auth_settings=["BearerToken"],
            )
        both = there.core.read_namespaced_service("claim", there.name)
    finally:
        there.core.patch_namespaced_service("claim", there.name, {"metadata": {"finalizers": None}})
    # strategicpatch.mergeSortedSlice: what only the server has comes after what the patch names
    assert both.metadata.finalizers == ["test/f2", "test/f1"]
    assert sorted(port.port for port in both.spec.ports) == [80, 443]


def test_a_dry_run_keeps_nothing(cluster, there):
    made = there.batch.create_namespaced_job(there.name, job(cluster, "pass"), dry_run="All")
    assert made.metadata.uid and made.spec.selector.match_labels
    assert there.batch.list_namespaced_job(there.name).items == []


def test_a_generated_name_ends_in_five_characters(there):
    made = there.core.create_namespaced_secret(there.name, {"metadata": {"generateName": "a-"}})
    assert made.metadata.name.startswith("a-") and len(made.metadata.name) == 7


def test_what_a_job_is_made_of_cannot_be_changed(cluster, there):
    there.create(job(cluster, "pass", suspend=True))
    with pytest.raises(ApiException, match="in tandem with") as refused:
        there.batch.patch_namespaced_job("claim", there.name, {"spec": {"completions": 7}})
    assert refused.value.status == 422
    with pytest.raises(ApiException, match="field is immutable") as refused:
        there.batch.patch_namespaced_job(
            "claim", there.name, {"spec": {"completionMode": "NonIndexed"}}
        )
    assert refused.value.status == 422


def test_a_delete_may_be_bound_to_one_uid(there, secrets):
    other = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=str(uuid.uuid4())))
    with pytest.raises(ApiException, match="Operation cannot be fulfilled on secrets") as refused:
        there.core.delete_namespaced_secret("s0", there.name, body=other)
    assert refused.value.status == 409
    own = client.V1Preconditions(uid=secrets[0].metadata.uid)
    there.core.delete_namespaced_secret(
        "s0", there.name, body=client.V1DeleteOptions(preconditions=own)
    )
    until(lambda: "s0" not in names(there.core.list_namespaced_secret(there.name)))


# --- refusals -------------------------------------------------------------------------------------


def test_what_is_not_there_is_a_404_that_names_it(there):
    with pytest.raises(ApiException) as refused:
        there.batch.read_namespaced_job("nothing", there.name)
    assert status_of(refused) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'jobs.batch "nothing" not found',
        "reason": "NotFound",
        "details": {"name": "nothing", "group": "batch", "kind": "jobs"},
        "code": 404,
    }


def test_a_namespace_that_is_not_there_is_named(cluster, there):
    manifest = job(cluster, "pass")
    with pytest.raises(ApiException) as refused:
        there.batch.create_namespaced_job("no-such-namespace", manifest)
    assert refused.value.status == 404
    assert status_of(refused)["message"] == 'namespaces "no-such-namespace" not found'


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        (
            {"restartPolicy": "Always"},
            "spec.template.spec.restartPolicy",
            'Required value: valid values: "OnFailure", "Never"',
        ),
        ({"containers": []}, "spec.template.spec.containers", "Required value"),
    ],
)
def test_a_mistake_in_a_manifest_is_a_422_with_its_field(cluster, there, change, field, words):
    manifest = job(cluster, "pass", template=change)
    with pytest.raises(ApiException) as refused:
        there.create(manifest)
    body = status_of(refused)
    assert (body["code"], body["reason"]) == (422, "Invalid")
    assert body["message"].startswith('Job.batch "claim" is invalid: ')
    causes = {cause["field"]: cause["message"] for cause in body["details"]["causes"]}
    assert causes[field] == words


def test_a_name_that_leaves_no_room_for_the_index_is_refused(cluster, there):
    with pytest.raises(ApiException, match="invalid DNS label") as refused:
        there.create(job(cluster, "pass", name="a" * 62))
    assert refused.value.status == 422


def test_a_failure_policy_without_failed_replacement_is_refused(cluster, there):
    rule = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
    policy = {"podFailurePolicy": {"rules": [rule]}}
    with pytest.raises(ApiException, match="podReplacementPolicy") as refused:
        there.create(job(cluster, "pass", podReplacementPolicy="TerminatingOrFailed", **policy))
    assert refused.value.status == 422


def test_a_pod_over_the_quota_is_forbidden(cluster, there):
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}}
    there.core.create_namespaced_resource_quota(there.name, quota)
    until(lambda: there.quota_is_counted("small"))
    pod = {
        "metadata": {"name": "one"},
        "spec": {"containers": [{"name": "main", "image": cluster.image}]},
    }
    with pytest.raises(ApiException) as refused:
        there.core.create_namespaced_pod(there.name, pod)
    assert refused.value.status == 403
    assert status_of(refused)["message"] == (
        'pods "one" is forbidden: exceeded quota: small, requested: pods=1, used: pods=0,'
        " limited: pods=0"
    )


def test_a_wrong_token_is_unauthorized(cluster, there):
    api = cluster.client()
    api.configuration.api_key = {"authorization": "Bearer wrong"}
    api.configuration.refresh_api_key_hook = None
    api.configuration.cert_file = api.configuration.key_file = None
    stranger = client.BatchV1Api(client.ApiClient(api.configuration))
    with pytest.raises(ApiException) as refused:
        stranger.list_namespaced_job(there.name)
    assert refused.value.status == 401 and status_of(refused)["reason"] == "Unauthorized"


def test_who_may_not_is_told_what_and_where(cluster, there, tmp_path):
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]}]
    theirs, user = cluster.account("trainer", rules, tmp_path / "trainer")
    other = Namespace(theirs)
    with pytest.raises(ApiException) as absent:
        other.batch.read_namespaced_job("claim", there.name)
    assert absent.value.status == 404
    with pytest.raises(ApiException) as refused:
        other.batch.list_namespaced_job(there.name)
    assert refused.value.status == 403
    assert status_of(refused)["message"] == (
        f'jobs.batch is forbidden: User "{user}" cannot list resource "jobs" in API group "batch"'
        f' in the namespace "{there.name}"'
    )


# --- what a manifest says -------------------------------------------------------------------------


def test_a_value_of_the_wrong_type_is_refused(cluster, there):
    manifest = job(cluster, "pass", container={"env": [{"name": "A", "value": 5}]})
    with pytest.raises(ApiException, match="cannot unmarshal number into Go") as refused:
        there.create(manifest)
    assert refused.value.status == 400 and status_of(refused)["reason"] == "BadRequest"


def test_an_unknown_field_is_dropped_with_a_warning_or_refused_if_asked(cluster, there):
    manifest = job(cluster, "pass", suspend=True, complections=3)
    with pytest.raises(ApiException, match="strict decoding error") as refused:
        there.batch.create_namespaced_job(there.name, manifest, field_validation="Strict")
    assert refused.value.status == 400
    _, _, headers = there.batch.create_namespaced_job_with_http_info(there.name, manifest)
    assert "unknown field" in headers["Warning"] and "complections" in headers["Warning"]


def test_a_pod_whose_account_is_not_there_is_not_made(cluster, there):
    there.create(job(cluster, "pass", template={"serviceAccountName": "nobody"}))
    told = until(lambda: there.warnings("claim"))
    assert f"error looking up service account {there.name}/nobody" in told


def test_a_pod_whose_priority_class_is_not_there_is_not_made(cluster, there):
    there.create(job(cluster, "pass", template={"priorityClassName": "no-such-class"}))
    told = until(lambda: there.warnings("claim"))
    assert "no PriorityClass with name no-such-class was found" in told


def test_a_restricted_namespace_takes_only_restricted_pods(cluster, there):
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    there.core.patch_namespace(there.name, {"metadata": {"labels": labels}})
    root = {"securityContext": {"runAsUser": 0}}
    there.create(job(cluster, "pass", name="loose", template=root))
    told = until(lambda: there.warnings("loose"))
    assert 'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false' in told
    assert "runAsNonRoot != true" in told and "seccompProfile" in told
    assert "runAsUser=0 (pod must not set runAsUser=0)" in told

    context = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    there.create(job(cluster, "pass", name="tight", container={"securityContext": context}))
    until(lambda: there.pods("claim=tight"))
