"""What an exceeded quota says: whether waiting can help, or its whole is too small."""

import re
from decimal import Decimal, InvalidOperation

_SAID = re.compile(r"exceeded quota: (?P<quota>[^,]+), requested: (?P<said>.+)$", re.DOTALL)
_PARTS = re.compile(r"^(?P<requested>.+?), used: (?P<used>.+?), limited: (?P<limited>.+)$")
_UNITS = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12),
    "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
    "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip
_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)")


def too_small(message: str, pods: int) -> bool:
    """Whether a quota could never hold so many pods, even if nobody else used any of it.

    Args:
        message: of the ``FailedCreate`` event; one of another form says no.
        pods: how many have to run at a time; the message is about one of them.
    """
    said = _SAID.search(message)
    parts = _PARTS.match(" ".join(said["said"].split())) if said else None
    if parts is None:
        return False
    requested, limited = _amounts(parts["requested"]), _amounts(parts["limited"])
    return any(
        amount * pods > limited[name] for name, amount in requested.items() if name in limited
    )


def amount(quantity: str) -> Decimal | None:
    """A quantity of the Kubernetes API (``500m``, ``8``, ``2Gi``) as a number; None: it is none.

    Source: k8s.io/apimachinery/pkg/api/resource, the suffixes of ``Quantity``.
    """
    parts = _QUANTITY.fullmatch(quantity.strip())
    if parts is None or parts[2] not in _UNITS:
        return None
    try:
        return Decimal(parts[1]) * _UNITS[parts[2]]
    except InvalidOperation:
        return None


def _amounts(listed: str) -> dict[str, Decimal]:
    """The amounts of ``pods=1,requests.cpu=2``."""
    pairs = [part.partition("=") for part in listed.split(",")]
    found = {name.strip(): amount(value) for name, _, value in pairs}
    return {name: value for name, value in found.items() if value is not None}
