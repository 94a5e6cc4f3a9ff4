"""The network policies, asked who may talk to whom: with our own services, and with the chart's."""

import shutil
from pathlib import Path

import pytest

from ml_assets_tests.deploy import chart
from ml_assets_tests.deploy.connections import Place, connects
from ml_assets_tests.deploy.rules import RUN, TRAINING, matches
from ml_assets_tests.deploy.test_manifests import (
    DEPLOY,
    WITH_SERVICES,
    a_policy,
    kustomized,
    named,
    objects,
)


def part(name: str) -> Place:
    return Place(labels={"ml-assets.io/part": name})


TRAINER, RUNS = Place(labels=TRAINING), Place(labels=RUN)
CODE, DAEMON = part("code-location"), part("daemon")
READERS, OPERATORS = part("readers-ui"), part("operators-ui")
DNS = Place({"k8s-app": "kube-dns"}, {"kubernetes.io/metadata.name": "kube-system"})
SERVICES = Place(namespace={"ml-assets.io/services": "true"})
INGRESS = Place(namespace={"ml-assets.io/ingress": "true"})
STRANGER = Place(namespace={"kubernetes.io/metadata.name": "default"})
OUTSIDE, METADATA = Place(address="52.216.0.1"), Place(address="169.254.169.254")
OUTSIDE_6, METADATA_6 = Place(address="2600:1f68::1"), Place(address="fd00:ec2::254")
GOOGLE_6 = Place(address="fd20:ce::254")

ALLOWED = {
    "torchrun's rendezvous": (TRAINER, TRAINER, 29500),
    "gloo and NCCL, on any port": (TRAINER, TRAINER, 41873),
    "a pod to Amazon's S3": (TRAINER, OUTSIDE, 443),
    "a pod to an S3 in the cluster": (TRAINER, SERVICES, 9000),
    "the daemon to the API server": (DAEMON, OUTSIDE, 6443),
    "a run to the API server": (RUNS, OUTSIDE, 443),
    "a run to Postgres": (RUNS, OUTSIDE, 5432),
    "a pod to an S3 by IPv6": (TRAINER, OUTSIDE_6, 443),
    "the daemon to an API server by IPv6": (DAEMON, OUTSIDE_6, 6443),
    "a run to Redis": (RUNS, OUTSIDE, 6379),
    "an alert to a mail server": (CODE, OUTSIDE, 587),
    "an alert by TLS from the first byte": (CODE, OUTSIDE, 465),
    "a run to MLflow": (RUNS, SERVICES, 5000),
    "a run to lakeFS": (RUNS, SERVICES, 8000),
    "the daemon to the code location": (DAEMON, CODE, 4000),
    "the readers' UI to the code location": (READERS, CODE, 4000),
    "the ingress to the readers' login": (INGRESS, READERS, 4180),
    "the ingress to the operators' login": (INGRESS, OPERATORS, 4180),
}
REFUSED = {
    "a training pod to the code location": (TRAINER, CODE, 4000),
    "a training pod to Postgres": (TRAINER, OUTSIDE, 5432),
    "a training pod to a mail server": (TRAINER, OUTSIDE, 587),
    "a training pod to the cloud's metadata": (TRAINER, METADATA, 443),
    "a run to the cloud's metadata": (RUNS, METADATA, 443),
    "a training pod to Amazon's metadata by IPv6": (TRAINER, METADATA_6, 443),
    "a run to Google's metadata by IPv6": (RUNS, GOOGLE_6, 443),
    "a run into a training pod": (RUNS, TRAINER, 29500),
    "a stranger into a training pod": (STRANGER, TRAINER, 29500),
    "a stranger to the code location": (STRANGER, CODE, 4000),
    "a stranger to a UI": (STRANGER, OPERATORS, 4180),
    "the ingress around the login": (INGRESS, OPERATORS, 3000),
    "whatever has no label": (Place(), OUTSIDE, 443),
}


@pytest.mark.parametrize("overlay", WITH_SERVICES)
@pytest.mark.parametrize("who", ALLOWED)
def test_what_has_to_talk_may(who: str, overlay: str) -> None:
    source, target, port = ALLOWED[who]
    assert connects(objects(overlay), source, target, port)


@pytest.mark.parametrize("overlay", WITH_SERVICES)
@pytest.mark.parametrize("who", REFUSED)
def test_what_need_not_talk_may_not(who: str, overlay: str) -> None:
    source, target, port = REFUSED[who]
    assert not connects(objects(overlay), source, target, port)


@pytest.mark.parametrize("protocol", ["UDP", "TCP"])
def test_everybody_may_ask_for_names(protocol: str) -> None:
    for source in (TRAINER, RUNS, CODE, READERS, Place()):
        assert connects(objects("production"), source, DNS, 53, protocol)


def test_a_policy_that_names_ports_would_cut_training_in_two() -> None:
    found = objects("dev")
    a_policy(found)["ingress"][0]["ports"] = [{"protocol": "TCP", "port": 29500}]
    assert not connects(found, *ALLOWED["gloo and NCCL, on any port"])


def test_with_cilium_whoever_calls_the_api_server_reaches_it(tmp_path: Path) -> None:
    """By a policy of Cilium's own, in an overlay that says so: no range covers a node."""
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    production = tmp_path / "deploy" / "overlays" / "production"
    with (production / "kustomization.yaml").open("a") as file:
        file.write("components: [../../cilium]\n")
    policy = named(kustomized(production), "CiliumNetworkPolicy", "api-server")
    assert policy["metadata"]["namespace"] == "ml-assets"
    (rule,) = policy["spec"]["egress"]
    assert rule["toEntities"] == ["kube-apiserver"]
    assert {one["port"] for one in rule["toPorts"][0]["ports"]} == {"443", "6443"}
    may = policy["spec"]["endpointSelector"]
    assert all(matches(may, one.labels) for one in (DAEMON, OPERATORS, RUNS, part("webserver")))
    assert not any(matches(may, one.labels) for one in (TRAINER, CODE, READERS, Place()))


def test_the_charts_webservers_are_reached_by_their_own_login_only() -> None:
    """One of them starts and stops runs: it is not the readers' login that leads there."""
    found = objects("helm")
    full, read_only = (
        Place(named(chart.made(), "Deployment", name)["spec"]["template"]["metadata"]["labels"])
        for name in ("dagster-webserver", "dagster-webserver-read-only")
    )
    assert connects(found, OPERATORS, full, 3000)
    assert connects(found, READERS, read_only, 3000)
    assert connects(found, full, CODE, 4000)
    assert connects(found, full, OUTSIDE, 5432)
    for source, target in (
        (READERS, full),
        (OPERATORS, read_only),
        (INGRESS, full),
        (INGRESS, read_only),
        (RUNS, full),
        (STRANGER, full),
    ):
        assert not connects(found, source, target, 3000)
