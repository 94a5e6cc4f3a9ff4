"""The orchestrator as a pod: a run's, or a step's of ``k8s_job_executor``."""

from urllib.parse import urlsplit

from kubernetes.config import incluster_config

from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets_tests.servers.kubernetes import ApiServer, certificates


def test_a_pod_reaches_its_cluster_by_its_service_account_and_reads_a_new_token(
    tmp_path, monkeypatch
):
    """As the pod of a run, or of a step, does: the kubelet puts a new token there in time."""
    mounted = tmp_path / "serviceaccount"
    mounted.mkdir()
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(mounted / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(mounted / "ca.crt"))
    (mounted / "ca.crt").write_bytes(certificates.made().authority)
    with ApiServer() as server:
        host = urlsplit(server.url)
        monkeypatch.delenv("KUBECONFIG", raising=False)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(host.hostname))
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(host.port))
        first = server.access.token("orchestrator")
        (mounted / "token").write_text(first)
        api = KubernetesApi(server.namespace, budget_seconds=20)
        assert api.jobs("a=b") == []
        server.access.revoke(first)
        (mounted / "token").write_text(server.access.token("orchestrator"))
        assert api.jobs("a=b") == [], "the connection is read again"
