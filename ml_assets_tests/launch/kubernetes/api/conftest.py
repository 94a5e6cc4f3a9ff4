"""The client, a Job for it to create, and one that runs."""

import pytest

from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.informer import JobInformer
from ml_assets_tests.launch.kubernetes.api.claims import SELECTOR
from ml_assets_tests.servers.kubernetes.sample_jobs import OBEDIENT, job, until


@pytest.fixture
def api(cluster):
    return KubernetesApi(cluster.namespace, 30.0, {"KUBECONFIG": str(cluster.kubeconfig)})


@pytest.fixture
def a_job(cluster):
    """A Job of one pod that sleeps; its container and its spec may be changed."""

    def a_job(script=OBEDIENT, **how):
        return job(cluster, script, **how)

    return a_job


@pytest.fixture
def running(api, a_job):
    """A Job of two pods that run, and the watch that sees it."""
    api.create_job(a_job(pods=2))
    with JobInformer(api, SELECTOR) as watch:

        def both():
            pods = watch.now().pods
            return len(pods) == 2 and all(pod.phase == "Running" for pod in pods)

        until(both)
        yield watch
