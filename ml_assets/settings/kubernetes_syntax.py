"""Kubernetes' syntax of names, labels and quantities, so that mistakes are found here.

Kubernetes documentation: "Object Names and IDs", "Labels and Selectors", "Quantity".
"""

import re
from decimal import Decimal

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,3})?"
_CPU = re.compile(rf"({_NUMBER})|([0-9]{{1,12}})m")
_BYTES = re.compile(rf"({_NUMBER})([kMGTP]|[KMGTP]i)?")
_MULTIPLES = {
    None: 1,
    **{unit: 1000**power for power, unit in enumerate("kMGTP", 1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("KMGTP", 1)},
}


def is_dns_label(text: str) -> bool:
    """The name of a namespace, a Service or a Kueue queue: RFC 1123, 63 signs at most."""
    return _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """The name of a Secret or a priority class: labels with dots between, 253 signs at most."""
    return len(text) <= 253 and all(map(is_dns_label, text.split(".")))


def is_label_value(text: str) -> bool:
    """What a label holds; it may be empty."""
    return not text or _LABEL_NAME.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """``name`` or ``domain.example/name``: of labels, taints and extended resources."""
    domain, slash, name = text.rpartition("/")
    return _LABEL_NAME.fullmatch(name) is not None and (not slash or is_dns_subdomain(domain))


def cores_of(quantity: str) -> Decimal | None:
    """Processor cores of ``2``, ``0.5`` or ``500m``; None: it is no such quantity, or nothing."""
    found = _CPU.fullmatch(quantity)
    if found is None:
        return None
    cores = Decimal(found[1]) if found[1] else Decimal(found[2]) / 1000
    return cores or None


def bytes_of(quantity: str) -> int | None:
    """Bytes of ``4Gi``, ``500M`` or a plain number; None: it is no such quantity, or nothing.

    Kubernetes takes ``400m`` for 0.4 bytes of memory; that is meant by nobody, and refused here.
    """
    found = _BYTES.fullmatch(quantity)
    return int(Decimal(found[1]) * _MULTIPLES[found[2]]) or None if found else None
