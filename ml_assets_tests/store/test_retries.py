"""The one policy by which a call to a store is tried again."""

import pytest

from ml_assets.errors import StoreAway, StoreRefuses
from ml_assets.store.retries import again


class Store:
    """Fails so many times; the waits between the tries are noted."""

    def __init__(self, failures: int, error: type[Exception] = StoreAway) -> None:
        self.failures, self.error = failures, error
        self.asked, self.waits = 0, list[float]()

    def answer(self) -> str:
        self.asked += 1
        if self.asked <= self.failures:
            raise self.error("no answer")
        return "here"

    def again(self, tries: int = 9) -> str:
        return again(
            self.answer,
            passes=lambda error: isinstance(error, StoreAway),
            tries=tries,
            first=1.0,
            longest=8.0,
            pause=self.waits.append,
        )


def test_the_waits_double_up_to_a_bound_and_each_is_by_chance_up_to_a_half_shorter() -> None:
    store = Store(failures=8)
    assert store.again() == "here"
    bounds = [1, 2, 4, 8, 8, 8, 8, 8]
    assert all(most / 2 <= wait <= most for wait, most in zip(store.waits, bounds, strict=True))
    assert len({wait / most for wait, most in zip(store.waits, bounds, strict=True)}) == 8


def test_after_the_last_try_its_own_error_is_raised_without_another_wait() -> None:
    store = Store(failures=99)
    with pytest.raises(StoreAway, match=r"^no answer$"):
        store.again(tries=3)
    assert (store.asked, len(store.waits)) == (3, 2)


def test_an_error_that_does_not_pass_is_raised_at_once() -> None:
    store = Store(failures=99, error=ValueError)
    with pytest.raises(ValueError, match="no answer"):
        store.again()
    assert (store.asked, store.waits) == (1, [])


def test_an_answer_is_not_asked_for_twice() -> None:
    store = Store(failures=0)
    assert (store.again(), store.asked, store.waits) == ("here", 1, [])


def test_a_refusal_is_no_outage_where_the_caller_says_so() -> None:
    with pytest.raises(StoreRefuses):
        again(
            Store(9, StoreRefuses).answer,
            passes=lambda error: not isinstance(error, StoreRefuses),
            tries=2,
            first=1.0,
            pause=lambda _: None,
        )
