"""Local folders in place of a pod's volumes."""

from pathlib import Path

from ml_assets_tests.servers.kubernetes.environment import ConfigError, data_of, field_of
from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.resources import CONFIG_MAPS, SECRETS
from ml_assets_tests.servers.kubernetes.store import Store


class MountError(Exception):
    """The pod waits, as ContainerCreating, with the event FailedMount."""


def make(store: Store, pod: Json, root: Path) -> dict[str, Path]:
    """A folder for each volume, filled; by the volume's name."""
    made = {}
    for volume in pod["spec"].get("volumes") or []:
        folder = root / volume["name"]
        folder.mkdir(parents=True, exist_ok=True)
        try:
            _fill(store, pod, volume, folder)
        except ConfigError as error:
            name = volume["name"]
            raise MountError(f'MountVolume.SetUp failed for volume "{name}" : {error}') from None
        made[volume["name"]] = folder
    return made


def _fill(store: Store, pod: Json, volume: Json, folder: Path) -> None:
    namespace = pod["metadata"]["namespace"]
    for source in [volume, *((volume.get("projected") or {}).get("sources") or [])]:
        if secret := source.get("secret"):
            name = secret.get("secretName") or secret["name"]
            data = data_of(store, SECRETS, namespace, name, bool(secret.get("optional")))
            _write(folder, data or {}, secret.get("items"))
        if config := source.get("configMap"):
            optional = bool(config.get("optional"))
            data = data_of(store, CONFIG_MAPS, namespace, config["name"], optional)
            _write(folder, data or {}, config.get("items"))
        if told := source.get("downwardAPI"):
            for item in told.get("items") or []:
                text = field_of(pod, item["fieldRef"]["fieldPath"])
                _write(folder, {item["path"]: text.encode()}, None)


def _write(folder: Path, data: dict[str, bytes], items: list[Json] | None) -> None:
    wanted = {item["key"]: item["path"] for item in items or []} or {key: key for key in data}
    for key, path in wanted.items():
        if key not in data:
            raise ConfigError(f"references non-existent secret key: {key}")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data[key])


def mounts_of(container: Json, volumes: dict[str, Path]) -> dict[str, Path]:
    """The container's mount paths with the folders that stand for them."""
    found = {}
    for mount in container.get("volumeMounts") or []:
        folder = volumes[mount["name"]] / mount.get("subPath", "")
        folder.mkdir(parents=True, exist_ok=True)
        found[mount["mountPath"]] = folder
    return found
