"""A store that is away is asked again for a while; one that refuses is not."""

import pytest

from ml_assets.errors import StoreAway, StoreRefuses
from ml_assets.launch import outage


class Store:
    """Away until a moment of its own clock, which waits move."""

    def __init__(self, until=float("inf")):
        self.now, self.until, self.asked, self.warned = 0.0, until, 0, []

    def ask(self):
        self.asked += 1
        if self.now < self.until:
            raise StoreAway("it does not answer")
        return "here"

    def pause(self, seconds):
        self.now += seconds

    def persist(self, given_up=lambda: False, asked=None):
        warn, clock = self.warned.append, lambda: self.now
        return outage.persist(asked or self.ask, given_up, warn, clock, self.pause)


def test_it_is_asked_again_more_and_more_seldom_and_told_once():
    store = Store(until=800)
    assert store.persist() == "here"
    assert 50 < store.asked < 70
    (warning,) = store.warned
    assert "is away, and is asked again: it does not answer" in warning


def test_after_a_quarter_of_an_hour_it_is_given_up():
    store = Store()
    with pytest.raises(StoreAway):
        store.persist()
    assert 900 < store.now < 901


def test_who_no_longer_waits_is_let_go_at_once():
    store = Store()
    with pytest.raises(StoreAway):
        store.persist(given_up=lambda: store.now > 2)
    assert 2 < store.now < 3


def test_a_refusal_is_told_at_once():
    store = Store()

    def refuse():
        raise StoreRefuses("access is denied")

    with pytest.raises(StoreRefuses):
        store.persist(asked=refuse)
    assert (store.now, store.warned) == (0, [])
