"""A model that was made elsewhere, and the claims of its registration."""

from pydantic import Field

from ml_assets.spec.base import Frozen

MADE_ELSEWHERE = "made elsewhere"
"""The code version of such a model: nobody here knows what code made it."""


class Registered(Frozen):
    """Words of the caller: nothing is decided by them."""

    version: str
    """What its makers call it."""
    uri: str
    """Where its files were taken from."""
    claims: dict[str, float] = Field(default_factory=dict)
    """Metric -> what they say it reaches."""
