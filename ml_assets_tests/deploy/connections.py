"""Who may open a connection to whom, by the NetworkPolicies that are there: what a network plug-in
makes of them (kubernetes.io, "Network Policies"), so that a test can ask."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

from ml_assets_tests.deploy.rules import Object, matches

HERE: Mapping[str, str] = {}
"""Labels of the namespace that the policies are in; none of ours selects it by them."""


@dataclass(frozen=True)
class Place:
    """One end of a connection: a pod here, a pod of another namespace, or an address outside."""

    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: Mapping[str, str] = field(default_factory=lambda: HERE)
    address: str = ""

    @property
    def here(self) -> bool:
        return self.namespace is HERE and not self.address


def connects(
    objects: Sequence[Object], source: Place, target: Place, port: int, protocol: str = "TCP"
) -> bool:
    """Whether both ends let the connection be; nobody asks an end that is not here."""
    return _lets(objects, source, target, "egress", port, protocol) and _lets(
        objects, target, source, "ingress", port, protocol
    )


def _lets(
    objects: Sequence[Object], own: Place, other: Place, way: str, port: int, protocol: str
) -> bool:
    """A pod that no policy of this way selects lets everything; else what one of them lets."""
    if not own.here:
        return True
    selecting = [
        one["spec"]
        for one in objects
        if one["kind"] == "NetworkPolicy"
        and way.capitalize() in one["spec"]["policyTypes"]
        and matches(one["spec"]["podSelector"], own.labels)
    ]
    return not selecting or any(
        _is_a_peer(rule, way, other) and _is_a_port(rule, port, protocol)
        for rule in _rules(selecting, way)
    )


def _rules(policies: Sequence[Any], way: str) -> Iterator[Mapping[str, Any]]:
    for policy in policies:
        yield from policy.get(way, ())


def _is_a_port(rule: Mapping[str, Any], port: int, protocol: str) -> bool:
    ports = rule.get("ports", ())
    return not ports or any(
        one["port"] == port and one.get("protocol", "TCP") == protocol for one in ports
    )


def _is_a_peer(rule: Mapping[str, Any], way: str, other: Place) -> bool:
    peers = rule.get("from" if way == "ingress" else "to", ())
    return not peers or any(_is(peer, other) for peer in peers)


def _is(peer: Mapping[str, Any], other: Place) -> bool:
    if "ipBlock" in peer:
        block = peer["ipBlock"]
        return bool(other.address) and _within(other.address, block)
    if other.address:
        return False
    if "namespaceSelector" in peer:
        there = not other.here and matches(peer["namespaceSelector"], other.namespace)
        return there and matches(peer.get("podSelector", {}), other.labels)
    return other.here and matches(peer["podSelector"], other.labels)


def _within(address: str, block: Mapping[str, Any]) -> bool:
    found = ip_address(address)
    return found in ip_network(block["cidr"]) and not any(
        found in ip_network(one) for one in block.get("except", ())
    )
