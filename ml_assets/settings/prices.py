"""What an hour of one GPU costs, by how it is bought: ``ML_ASSETS_PRICES``."""

import os
import re
from collections.abc import Mapping
from typing import Literal

from ml_assets.errors import SettingsError

PriceClass = Literal["on-demand", "spot", "reserved"]
PRICE_CLASSES: tuple[PriceClass, ...] = ("on-demand", "spot", "reserved")


def read_prices(environment: Mapping[str, str] | None = None) -> dict[PriceClass, float]:
    """Price class -> price of a GPU-hour, in any currency; those not given are not known.

    Raises:
        SettingsError: a class that is none, a price that is none, or one given twice.
    """
    env = os.environ if environment is None else environment
    prices: dict[PriceClass, float] = {}
    for part in filter(None, re.split(r"[,\s]+", env.get("ML_ASSETS_PRICES", ""))):
        name, _, price = part.partition("=")
        if name not in PRICE_CLASSES:
            raise SettingsError(
                f"ML_ASSETS_PRICES names {name!r}; expected one of {list(PRICE_CLASSES)}, such as"
                ' "spot=1.10,on-demand=3.75".'
            )
        if name in prices:
            raise SettingsError(f"ML_ASSETS_PRICES gives {name} twice; give it once.")
        if not re.fullmatch(r"\d{1,9}(\.\d{1,6})?", price):
            raise SettingsError(
                f"ML_ASSETS_PRICES gives {name} the price {price!r}; expected what an hour of one"
                f" GPU costs, as a plain number such as {name}=3.75."
            )
        prices[name] = float(price)
    return prices
