"""Numbers on an asset's page: as many digits as a person reads."""

import math

import pytest

from ml_assets.adapters.metadata import numbers


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (0.8123456789012345, 0.812346),
        (-0.00012345678, -0.000123457),
        (1234567.891, 1234568.0),
        (12345678901, 12345678901),
        (0.0, 0.0),
        (math.inf, math.inf),
    ],
)
def test_a_number_on_a_page_has_six_digits_and_none_left_of_the_point_is_lost(
    given: float, shown: float
) -> None:
    said = {"loss": given, "missing": None, "device": "cpu"}
    assert numbers(said) == {"loss": shown, "device": "cpu"}
