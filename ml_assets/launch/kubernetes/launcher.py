"""Training sessions on a Kubernetes cluster, their objects on S3."""

from collections.abc import Callable

from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.runner import KubernetesRunner
from ml_assets.launch.next_attempt import Budgets
from ml_assets.launch.session_launcher import SessionLauncher
from ml_assets.settings import Cluster
from ml_assets.spec.training_program.pod import SESSIONS
from ml_assets.store.s3.objects import S3Objects
from ml_assets.store.signing import Keys


class KubernetesLauncher(SessionLauncher):
    """The launcher of a cluster: an Indexed Job for each attempt.

    Args:
        objects: the store, and its cache on this machine.
        settings: what every pod is given.
        keys: the keys that make a score or a sanity check count.
        checkpoints: an ``s3://bucket/prefix`` for all sessions; None: each beside its own.
        goes_on: asked when this process is interrupted: whether the Job goes on without it, to be
            adopted by who comes next; else it is ended, and saves.
        api: the cluster; None: where KUBECONFIG leads, or the one that we are a pod of.
        budgets: how often an attempt is made again.
    """

    def __init__(
        self,
        objects: S3Objects,
        settings: Cluster,
        keys: Callable[[], Keys],
        checkpoints: str | None = None,
        goes_on: Callable[[], bool] = lambda: False,
        api: KubernetesApi | None = None,
        budgets: Budgets | None = None,
    ) -> None:
        api = api or KubernetesApi(settings.namespace)
        beside = f"{objects.place.uri}/{SESSIONS}/{{session}}/checkpoints"
        self._pods = KubernetesRunner(api, settings, objects, goes_on)
        super().__init__(objects, self._pods, keys, budgets or Budgets(), checkpoints or beside)

    def kill(self, session: str, attempt: int, rank: int) -> bool:
        """Delete the pod of a rank without a grace, for a drill; False: it does not run now."""
        return self._pods.kill(session, attempt, rank)
