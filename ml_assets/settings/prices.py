"""Reads what machines, storage and transfer cost: ``ML_ASSETS_PRICES``."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, get_args

from ml_assets.errors import SettingsError, did_you_mean

PriceClass = Literal["on-demand", "spot", "reserved"]
PRICE_CLASSES: tuple[PriceClass, ...] = get_args(PriceClass)
_NODE = "node"
_NAMES = (
    *PRICE_CLASSES,
    _NODE,
    *(f"{one}-{_NODE}" for one in PRICE_CLASSES),
    "storage",
    "transfer",
)
_EXAMPLE = "spot=1.10,on-demand=3.75,reserved=2.40,node=0.40,storage=0.023,transfer=0.09"


@dataclass(frozen=True)
class Prices:
    """The prices of machines and storage in one currency; a cost without its price is not told."""

    given: Mapping[str, Decimal] = field(default_factory=dict)
    """``spot``, ``on-demand``, ``reserved``: of a GPU for an hour, its share of the machine in it.
    ``node``: of a machine without GPUs for an hour, ``spot-node`` and its like where that differs.
    ``storage``: of a GB (10^9 bytes) for a month. ``transfer``: of a GB."""

    def node_hour(self, bought: PriceClass, gpus: int) -> Decimal | None:
        """The price of one machine with so many GPUs; None: not known."""
        if not gpus:
            return self.given.get(f"{bought}-{_NODE}", self.given.get(_NODE))
        each = self.given.get(bought)
        return None if each is None else each * gpus

    @property
    def storage(self) -> Decimal | None:
        """The price of a GB (10^9 bytes) for a month."""
        return self.given.get("storage")

    @property
    def transfer(self) -> Decimal | None:
        """The price of a GB that is moved."""
        return self.given.get("transfer")

    def said(self) -> dict[str, str]:
        """The prices as a record keeps them: as text, for no float ever holds a price."""
        return {name: str(price) for name, price in self.given.items()}


def read_prices(environment: Mapping[str, str]) -> Prices:
    """Read ML_ASSETS_PRICES.

    Raises:
        SettingsError: a name that is none, a price that is none, or one given twice.
    """
    said = re.split(r"[,\s]+", environment.get("ML_ASSETS_PRICES", ""))
    parts = [part.partition("=") for part in said]
    return prices_of((name, price) for name, equals, price in parts if name or equals)


def prices_of(said: Iterable[tuple[str, str]]) -> Prices:
    """The prices that a setting or a record names.

    Raises:
        SettingsError: see ``read_prices``.
    """
    found: dict[str, Decimal] = {}
    for name, price in said:
        if name not in _NAMES:
            raise SettingsError(
                f"ML_ASSETS_PRICES names {name!r}, which has no price.{did_you_mean(name, _NAMES)}"
                f" Expected such as {_EXAMPLE}"
            )
        if name in found:
            raise SettingsError(f"ML_ASSETS_PRICES gives {name} twice; give it once.")
        if not re.fullmatch(r"\d{1,9}(\.\d{1,6})?", price, re.ASCII):
            raise SettingsError(
                f"ML_ASSETS_PRICES gives {name} the price {price!r}; expected a plain number such"
                f" as {name}=3.75."
            )
        found[name] = Decimal(price)
    return Prices(found)


def price_class(spot: bool, environment: Mapping[str, str] | None = None) -> PriceClass:
    """Return how the machines of a job are bought; what is not spot is as ML_ASSETS_CAPACITY says.

    Raises:
        SettingsError: it says neither on-demand nor reserved.
    """
    env = os.environ if environment is None else environment
    said = env.get("ML_ASSETS_CAPACITY") or "on-demand"
    if said not in ("on-demand", "reserved"):
        raise SettingsError(
            f"ML_ASSETS_CAPACITY is {said!r}; expected how machines that are not spot are bought:"
            " on-demand or reserved."
        )
    return "spot" if spot else said
