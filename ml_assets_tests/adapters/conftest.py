"""Instances as production has them."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml


@pytest.fixture
def runs_are_jobs(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance that launches runs as Jobs of a cluster; none is asked anything here."""
    pytest.importorskip("dagster_k8s", reason="pip install '.[cluster]'")
    entry = {"cluster": {"server": "https://127.0.0.1:1"}, "user": {}, "name": "here"}
    context = {"context": {"cluster": "here", "user": "here"}, "name": "here"}
    named = {
        "clusters": [{k: entry[k] for k in ("cluster", "name")}],
        "users": [{k: entry[k] for k in ("user", "name")}],
        "contexts": [context],
        "current-context": "here",
    }
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **named}))
    launcher = {
        "module": "dagster_k8s",
        "class": "K8sRunLauncher",
        "config": {
            "service_account_name": "me",
            "instance_config_map": "dagster-instance",
            "load_incluster_config": False,
            "kubeconfig_file": str(kubeconfig),
        },
    }
    with dg.instance_for_test(overrides={"run_launcher": launcher}) as instance:
        yield instance
