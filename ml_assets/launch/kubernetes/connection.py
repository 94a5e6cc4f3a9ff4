"""Connects to a cluster: from KUBECONFIG, or as a pod of it; read again when a token expires."""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import getproxies_environment

from ml_assets.errors import SettingsError, install

_DEFAULT = "~/.kube/config"
_HOW = "Set KUBECONFIG to the file that kubectl uses, or run in the cluster with a service account."


@dataclass(frozen=True)
class Connection:
    """The client that one reading of the kubeconfig gave."""

    number: int
    client: Any
    """``kubernetes.client.ApiClient``."""

    @property
    def server(self) -> str:
        """Its address."""
        return str(self.client.configuration.host)


class Connections:
    """The newest reading, for all threads; each failure renews it once, whoever meets it."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._now: Connection | None = None

    def now(self) -> Connection:
        """The connection to use.

        Raises:
            SettingsError: the configuration cannot be used.
        """
        with self._lock:
            if self._now is None:
                self._now = Connection(1, self._connect())
            return self._now

    def renew(self, failed: Connection) -> None:
        """Read the configuration again, unless somebody did since that one failed."""
        with self._lock:
            if self._now is None or self._now.number == failed.number:
                self._now = Connection(failed.number + 1, self._connect())


def connect(environment: Mapping[str, str] | None = None) -> Any:
    """A client of the official package, from KUBECONFIG, else the pod we are, else kubectl's file.

    Raises:
        SettingsError: there is no configuration, or it cannot be used; or no such package.
    """
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise SettingsError(
            "ML_ASSETS_LAUNCHER is kubernetes, and the official client is not installed here."
            f" Remedy: {install('kubernetes')}; or ML_ASSETS_LAUNCHER=local."
        ) from error
    env = os.environ if environment is None else environment
    configuration: Any = client.Configuration()
    if env.get("KUBECONFIG") or "KUBERNETES_SERVICE_HOST" not in env:
        _load_file(configuration, env.get("KUBECONFIG") or _DEFAULT)
    else:
        try:
            config.load_incluster_config(configuration)
        except (config.ConfigException, OSError) as error:
            raise SettingsError(
                f"This pod has no credentials for its cluster ({error}). Give it a service account"
                " with automountServiceAccountToken: true."
            ) from error
    configuration.retries = False  # tries again by rules of its own, without waiting
    configuration.no_proxy = getproxies_environment().get("no")  # version 35 forgets it
    configuration.client_side_validation = False
    return client.ApiClient(configuration)


def _load_file(configuration: Any, paths: str) -> None:
    import yaml
    from kubernetes import config

    files = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    if not any(file.is_file() for file in files):
        raise SettingsError(f"There is no Kubernetes configuration at {paths}. {_HOW}")
    try:
        config.load_kube_config(paths, client_configuration=configuration, persist_config=False)
    except yaml.MarkedYAMLError as error:  # its text shows lines of the file: tokens, maybe
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        said = f"it is not YAML (line {line}: {error.problem})"
    except config.ConfigException as error:
        said = _said(str(error))
    except (OSError, UnicodeDecodeError) as error:
        said = f"it cannot be read ({type(error).__name__})"
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        said = f"it is not written as a kubeconfig is ({type(error).__name__})"
    else:
        return
    raise SettingsError(f"The Kubernetes configuration {paths} cannot be used: {said}. {_HOW}")


def _said(text: str) -> str:
    if "current-context" in text or "/contexts" in text:
        return "it has no current context (`kubectl config use-context NAME` chooses one)"
    return " ".join(text.split())[:300].rstrip(".")
