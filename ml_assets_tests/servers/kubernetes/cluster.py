"""The cluster of these tests: our own API server, or a real one that the environment names."""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ml_assets_tests.servers.kubernetes import ApiServer

KUBECONFIG = "ML_ASSETS_TEST_KUBECONFIG"
IMAGE = "ML_ASSETS_TEST_IMAGE"


@dataclass(frozen=True)
class TestCluster:
    """What a test needs of a cluster, ours or a real one."""

    kubeconfig: Path
    namespace: str
    image: str
    own: ApiServer | None
    """Our server; None on a real cluster."""

    __test__ = False

    @property
    def server(self) -> ApiServer:
        """Our server, for what only it can do: on a real cluster the test is skipped."""
        return self.own_server("it plants a fault that only the tests' own server can plant")

    def own_server(self, why: str) -> ApiServer:
        """Our server; on a real cluster the test is skipped.

        Args:
            why: what a real cluster cannot show, or what it would cost others there.
        """
        if self.own is None:
            pytest.skip(f"only on the tests' own server: {why}")
        return self.own

    def with_token(self, token: str, kubeconfig: Path) -> "TestCluster":
        """The same cluster for another bearer token, which is written into a kubeconfig."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        config["users"] = [{"name": "given", "user": {"token": token}}]
        for context in config["contexts"]:
            context["context"]["user"] = "given"
        kubeconfig.write_text(yaml.safe_dump(config))
        kubeconfig.chmod(0o600)
        return replace(self, kubeconfig=kubeconfig)

    def account(
        self, name: str, rules: list[dict[str, Any]], kubeconfig: Path
    ) -> "tuple[TestCluster, str]":
        """The cluster for an account that may do these things in our namespace, and its user."""
        if self.own is not None:
            token = self.own.access.token(name, rules=rules, namespace=self.namespace)
            return self.with_token(token, kubeconfig), name
        token = _service_account(self.client(), self.namespace, name, rules)
        user = f"system:serviceaccount:{self.namespace}:{name}"
        return self.with_token(token, kubeconfig), user

    def pass_time(self, seconds: float) -> None:
        """Move our cluster's time forwards; a real one takes the time that it takes."""
        if self.own is not None:
            self.own.clock.advance(seconds)

    def client(self) -> Any:
        """The official client, of this cluster."""
        from kubernetes import config

        return config.new_client_from_config(config_file=str(self.kubeconfig))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TestCluster]:
    """A cluster with an empty namespace that goes when the test ends."""
    image = os.environ.get(IMAGE, "python:3.11-slim")
    if given := os.environ.get(KUBECONFIG):
        yield from _real(Path(given), image)
        return
    with ApiServer() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        yield TestCluster(kubeconfig, server.namespace, image, server)
        failures = server.failures
    assert not failures, f"the API server itself failed: {failures}"


def _real(kubeconfig: Path, image: str) -> Iterator[TestCluster]:
    from kubernetes import client, config

    name = f"ml-assets-test-{uuid.uuid4().hex[:8]}"
    api = client.CoreV1Api(config.new_client_from_config(config_file=str(kubeconfig)))
    api.create_namespace({"metadata": {"name": name}})
    try:
        _wait_for_account(api, name)
        yield TestCluster(kubeconfig, name, image, None)
    finally:
        try:
            _drop_finalizers(api, name)
        finally:
            api.delete_namespace(name)


def _service_account(api: Any, namespace: str, name: str, rules: list[dict[str, Any]]) -> str:
    """Make an account with a Role of these rules; a token of it."""
    from kubernetes import client

    core, rbac = client.CoreV1Api(api), client.RbacAuthorizationV1Api(api)
    meta = {"metadata": {"name": name}}
    core.create_namespaced_service_account(namespace, meta)
    rbac.create_namespaced_role(namespace, {**meta, "rules": rules})
    rbac.create_namespaced_role_binding(
        namespace,
        {
            **meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    )
    asked = {"spec": {"expirationSeconds": 600}}
    answer: Any = core.create_namespaced_service_account_token(name, namespace, asked)
    return answer.status.token


def _drop_finalizers(api: Any, namespace: str) -> None:
    """Of what a test that failed left behind: the namespace would stay in Terminating for ever."""
    from kubernetes import client

    batch: Any = client.BatchV1Api(api.api_client)
    nothing = {"metadata": {"finalizers": None}}
    for listed, patch in (
        (batch.list_namespaced_job, batch.patch_namespaced_job),
        (api.list_namespaced_service, api.patch_namespaced_service),
        (api.list_namespaced_secret, api.patch_namespaced_secret),
        (api.list_namespaced_config_map, api.patch_namespaced_config_map),
    ):
        for item in listed(namespace).items:
            if any(name.startswith("test/") for name in item.metadata.finalizers or ()):
                patch(item.metadata.name, namespace, nothing)


def _wait_for_account(api: Any, namespace: str) -> None:
    """A new namespace takes no pod before its account `default` is there."""
    from kubernetes import watch

    follow = watch.Watch()
    events: Any = follow.stream(api.list_namespaced_service_account, namespace, timeout_seconds=60)
    for event in events:
        if event["object"].metadata.name == "default":
            follow.stop()
