"""Namespaces: a service account with the first moment; what is in one goes before it does."""

from ml_assets_tests.servers.kubernetes import admission
from ml_assets_tests.servers.kubernetes.deletion import delete
from ml_assets_tests.servers.kubernetes.errors import ApiError
from ml_assets_tests.servers.kubernetes.loop import Loop
from ml_assets_tests.servers.kubernetes.resources import NAMESPACES, RESOURCES, SERVICE_ACCOUNTS
from ml_assets_tests.servers.kubernetes.store import Change, Store, key_of


class NamespaceController:
    def __init__(self, store: Store, loop: Loop) -> None:
        self._store = store
        self._loop = loop

    def notice(self, change: Change) -> None:
        if change.resource is NAMESPACES and change.type == "ADDED":
            self._give_account(change.obj["metadata"]["name"])
        elif change.resource is NAMESPACES and change.type == "MODIFIED":
            self._soon(change.obj["metadata"]["name"])
        elif change.type == "DELETED" and change.obj["metadata"].get("namespace"):
            self._soon(change.obj["metadata"]["namespace"])

    def _give_account(self, name: str) -> None:
        """Every namespace has the service account `default`; here from its first moment."""
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": name},
        }
        admission.create(self._store, SERVICE_ACCOUNTS, account)

    def _soon(self, name: str) -> None:
        self._loop.soon(("namespace", name), lambda: self._sync(name))

    def _sync(self, name: str) -> None:
        namespace = self._store.find(NAMESPACES, "", name)
        if namespace is None or namespace["status"]["phase"] != "Terminating":
            return
        left = False
        for resource in RESOURCES:
            for obj in self._store.all(resource, name) if resource.namespaced else []:
                if "deletionTimestamp" not in obj["metadata"]:
                    try:
                        delete(
                            self._store,
                            resource,
                            key_of(obj),
                            {"propagationPolicy": "Background"},
                        )
                    except ApiError as error:
                        if error.code != 404:
                            raise
                left = left or self._store.find(resource, *key_of(obj)) is not None
        if not left:
            self._store.remove(NAMESPACES, ("", name))
