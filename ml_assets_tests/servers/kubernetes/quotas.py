"""The quota controller: what of each ResourceQuota is used, kept in its status."""

from decimal import Decimal

from ml_assets_tests.servers.kubernetes import admission, quantities
from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.loop import Loop
from ml_assets_tests.servers.kubernetes.resources import QUOTAS
from ml_assets_tests.servers.kubernetes.store import Change, Store, key_of


class QuotaController:
    def __init__(self, store: Store, loop: Loop) -> None:
        self._store = store
        self._loop = loop

    def notice(self, change: Change) -> None:
        namespace = change.obj["metadata"].get("namespace", "")
        if namespace and change.resource.kind != "Event" and self._store.all(QUOTAS, namespace):
            self._loop.soon(("quota", namespace), lambda: self._sync(namespace))

    def _sync(self, namespace: str) -> None:
        used = admission.quota_used(self._store, namespace)
        for quota in self._store.all(QUOTAS, namespace):
            hard = quota["spec"].get("hard") or {}
            counted = {name: used.get(name, Decimal(0)) for name in hard}
            counted |= admission.counted(self._store, namespace, hard)
            shown = {name: quantities.write(amount) for name, amount in counted.items()}

            def edit(new: Json, hard: Json = hard, shown: Json = shown) -> None:
                new["status"] = {"hard": dict(hard), "used": shown}

            self._store.change(QUOTAS, *key_of(quota), edit)
