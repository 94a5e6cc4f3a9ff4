"""Prices are plain decimal numbers of known things; what is not given is not known."""

from decimal import Decimal

import pytest

from ml_assets.errors import SettingsError
from ml_assets.settings import price_class, prices_of, read_prices, read_settings

SAID = "spot=1.10,on-demand=3.75 reserved=2.40\nnode=0.40,spot-node=0.12,storage=0.023,transfer=0.1"


def test_prices_are_of_gpu_hours_by_how_they_are_bought_and_of_the_rest() -> None:
    prices = read_prices({"ML_ASSETS_PRICES": SAID})
    assert prices.node_hour("spot", 8) == Decimal("8.80")
    assert prices.node_hour("on-demand", 1) == Decimal("3.75")
    assert prices.node_hour("reserved", 2) == Decimal("4.80")
    assert prices.node_hour("spot", 0) == Decimal("0.12")
    assert prices.node_hour("reserved", 0) == Decimal("0.40")
    assert (prices.storage, prices.transfer) == (Decimal("0.023"), Decimal("0.1"))


def test_what_is_not_given_is_not_known_and_nothing_stands_in_for_it() -> None:
    prices = read_prices({"ML_ASSETS_PRICES": "on-demand=3.75"})
    assert prices.node_hour("spot", 8) is None
    assert prices.node_hour("on-demand", 0) is None
    assert (prices.storage, prices.transfer) == (None, None)
    assert read_prices({}).said() == {}


def test_a_record_of_prices_is_read_as_they_were_said() -> None:
    prices = read_prices({"ML_ASSETS_PRICES": SAID})
    assert prices_of(prices.said().items()) == prices
    assert prices.said()["spot"] == "1.10"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("spot", "the price ''"),
        ("spot=-1", "a plain number"),
        ("spot=nan", "a plain number"),
        ("spot=1e9", "a plain number"),
        ("spot=3 EUR", "'EUR', which has no price"),
        ("=3", "'', which has no price"),
        ("spot=1,spot=2", "gives spot twice"),
        ("ondemand=1", "Did you mean 'on-demand'"),
        ("spot=٣", "a plain number"),
    ],
)
def test_a_price_that_is_none_is_refused_at_once_with_what_was_meant(wrong: str, said: str) -> None:
    with pytest.raises(SettingsError, match="ML_ASSETS_PRICES") as told:
        read_settings({"ML_ASSETS_PRICES": wrong})
    assert said in str(told.value)


def test_what_is_not_spot_is_bought_as_the_capacity_says() -> None:
    assert price_class(True, {"ML_ASSETS_CAPACITY": "reserved"}) == "spot"
    assert price_class(False, {}) == "on-demand"
    assert price_class(False, {"ML_ASSETS_CAPACITY": "reserved"}) == "reserved"
    with pytest.raises(SettingsError, match="on-demand or reserved"):
        price_class(False, {"ML_ASSETS_CAPACITY": "spot"})
