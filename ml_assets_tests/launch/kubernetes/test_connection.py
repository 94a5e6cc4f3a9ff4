"""A configuration that cannot be used is told in one sentence, with what to do; no secret in it."""

import os
import sys
import threading
from pathlib import Path

import pytest
import yaml

from ml_assets.errors import SettingsError
from ml_assets.launch.kubernetes.connection import Connections, connect

CONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "here",
    "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443"}}],
    "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    "users": [{"name": "u", "user": {"token": "s3cr3t"}}],
}


@pytest.fixture
def kubeconfig(tmp_path):
    def kubeconfig(text=None, **changed):
        file = tmp_path / "config"
        file.write_text(text if text is not None else yaml.safe_dump(CONFIG | changed))
        return {"KUBECONFIG": str(file)}

    return kubeconfig


def test_it_is_read_from_where_kubectl_reads_it(kubeconfig):
    client = connect(kubeconfig())
    assert client.configuration.host == "https://10.0.0.1:6443"
    assert client.configuration.api_key["authorization"] == "Bearer s3cr3t"


def test_several_files_are_one_and_those_that_are_not_there_are_none(kubeconfig, tmp_path):
    paths = os.pathsep.join([str(tmp_path / "not-there"), kubeconfig()["KUBECONFIG"]])
    assert connect({"KUBECONFIG": paths}).configuration.host == "https://10.0.0.1:6443"


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"no Kubernetes configuration at .*/nowhere"):
        connect({"KUBECONFIG": str(tmp_path / "nowhere")})


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"current-context": ""}, "no current context"),
        ({"current-context": "elsewhere"}, "no current context"),
        ({"clusters": []}, "clusters"),
        ({"contexts": "here"}, "cannot be used"),
    ],
)
def test_a_configuration_that_leads_nowhere_says_why(kubeconfig, changed, says):
    with pytest.raises(SettingsError, match=says):
        connect(kubeconfig(**changed))


@pytest.mark.parametrize("text", ["", "[]", "- a\n- b", "just text", "a: 1"])
def test_a_file_that_is_no_configuration_says_so(kubeconfig, text):
    with pytest.raises(SettingsError, match="cannot be used"):
        connect(kubeconfig(text))


def test_a_broken_file_shows_no_line_of_itself(kubeconfig):
    broken = "users:\n- user: {token: s3cr3t\n"
    with pytest.raises(SettingsError, match=r"not YAML \(line \d") as refused:
        connect(kubeconfig(broken))
    assert "s3cr3t" not in str(refused.value)


def test_a_pod_without_a_service_account_is_told_so():
    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(SettingsError, match="service account"):
        connect(inside)


def test_a_client_that_is_not_installed_is_told_with_the_command(monkeypatch, kubeconfig):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(SettingsError, match=r"not installed here.*\[kubernetes\]"):
        connect(kubeconfig())


def test_the_environment_says_which_addresses_need_no_proxy(kubeconfig, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:3128")
    monkeypatch.setenv("NO_PROXY", "10.0.0.1")
    monkeypatch.setenv("no_proxy", "10.0.0.1")
    client = connect(kubeconfig())
    assert client.configuration.no_proxy == "10.0.0.1"
    assert type(client.rest_client.pool_manager).__name__ == "PoolManager"


def test_a_failure_that_many_threads_meet_renews_the_connection_once():
    read = []
    connections = Connections(lambda: read.append(1) or len(read))
    failed = connections.now()
    threads = [threading.Thread(target=connections.renew, args=[failed]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (connections.now().number, connections.now().client, len(read)) == (2, 2, 2)


def test_a_home_without_kubectls_file_says_what_to_set(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not Path("~/.kube/config").expanduser().exists()
    with pytest.raises(SettingsError, match="Set KUBECONFIG"):
        connect({})
