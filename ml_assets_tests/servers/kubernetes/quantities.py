"""Kubernetes quantities ("500m", "4Gi") and the sum of what a pod asks for."""

import re
from decimal import Decimal

from ml_assets_tests.servers.kubernetes.errors import Json

_FORM = re.compile(r"^([+-]?[0-9.]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$")
_SUFFIX = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{letter: Decimal(1000) ** (i + 1) for i, letter in enumerate("kMGTPE")},
    **{f"{letter}i": Decimal(1024) ** (i + 1) for i, letter in enumerate("KMGTPE")},
}

Amounts = dict[str, Decimal]


def read(quantity: object) -> Decimal:
    """The number that a quantity stands for; ValueError where it is none."""
    form = _FORM.match(str(quantity).strip())
    if not form:
        raise ValueError(
            "quantities must match the regular expression"
            " '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    suffix = form[2] or ""
    if suffix in _SUFFIX:
        return Decimal(form[1]) * _SUFFIX[suffix]
    return Decimal(form[1] + suffix)


def requests_of(pod: Json) -> Amounts:
    """What the scheduler counts: the containers' sum and native sidecars, or the largest init."""
    total: Amounts = {}
    for container in pod["spec"].get("containers") or []:
        _add(total, _requests(container))
    peak: Amounts = {}
    for init in pod["spec"].get("initContainers") or []:
        amounts = _requests(init)
        if init.get("restartPolicy") == "Always":
            _add(total, amounts)
        else:
            peak = {
                k: max(peak.get(k, Decimal(0)), amounts.get(k, Decimal(0)))
                for k in {*peak, *amounts}
            }
    return {k: max(total.get(k, Decimal(0)), peak.get(k, Decimal(0))) for k in {*total, *peak}}


def _requests(container: Json) -> Amounts:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: read(amount) for name, amount in asked.items()}


def memory_limit(container: Json) -> Decimal | None:
    """Bytes that a container may use; None: no limit."""
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    return None if limit is None else read(limit)


def limits_of(pod: Json) -> Amounts:
    total: Amounts = {}
    for container in pod["spec"].get("containers") or []:
        limits = (container.get("resources") or {}).get("limits") or {}
        _add(total, {name: read(amount) for name, amount in limits.items()})
    return total


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Decimal(0)) + amount


def write(amount: Decimal) -> str:
    """A quantity in plain digits or thousandths."""
    if amount == amount.to_integral_value():
        return str(int(amount))
    return f"{int(amount * 1000)}m"
