"""The one policy by which a store is asked again: a few tries, or until it is given up."""

import os
import signal
import threading

import pytest

from ml_assets.errors import StoreAway, StoreRefuses
from ml_assets.store import retries
from ml_assets.store.retries import AWAY_SECONDS, Deadline, again, persist


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


class AwayUntil:
    """A store that is away until a moment of its own clock, which waits move."""

    def __init__(self, moment: float = float("inf")) -> None:
        self.now, self.moment, self.asked = 0.0, moment, 0
        self.waits, self.told = list[float](), list[tuple[str, float]]()
        self.deadline = Deadline(lambda: self.now, self.pause)

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def ask(self) -> str:
        self.asked += 1
        if self.now < self.moment:
            raise StoreAway("it does not answer")
        return "here"

    def tell(self, error: BaseException, seconds: float) -> None:
        self.told.append((str(error), seconds))

    def persist(self) -> str:
        return persist(self.ask, self.deadline, tell=self.tell)


def test_a_store_that_is_away_is_asked_more_and_more_seldom_and_not_by_all_at_once() -> None:
    store = AwayUntil(800)
    assert store.persist() == "here"
    assert 53 < store.asked < 110
    bounds = [1, 2, 4, 8, 15, 15, 15, 15]
    waits = [seconds for _, seconds in store.told][: len(bounds)]
    assert all(most / 2 <= wait <= most for wait, most in zip(waits, bounds, strict=True))
    assert len({wait / most for wait, most in zip(waits, bounds, strict=True)}) > 1
    assert {words for words, _ in store.told} == {"it does not answer"}


def test_after_a_quarter_of_an_hour_a_store_is_given_up() -> None:
    store = AwayUntil()
    with pytest.raises(StoreAway):
        store.persist()
    assert store.now == pytest.approx(AWAY_SECONDS)


def test_a_deadline_that_moves_closer_ends_the_wait_after_one_more_try() -> None:
    store = AwayUntil()

    def notice(_: BaseException, seconds: float) -> None:
        store.deadline.within(0.5)

    with pytest.raises(StoreAway):
        persist(store.ask, store.deadline, tell=notice)
    assert (store.now, store.asked) == (0.5, 2)


def test_a_store_that_refuses_is_not_asked_again() -> None:
    store = AwayUntil()

    def refuse() -> None:
        raise StoreRefuses("access is denied")

    with pytest.raises(StoreRefuses):
        persist(refuse, store.deadline, tell=store.tell)
    assert (store.now, store.told) == (0, [])


def test_those_who_work_in_step_decide_tell_and_wait_together() -> None:
    store, together = AwayUntil(2), []

    def on_first(work):  # as a group of ranks does: see training.distributed.ranks
        together.append(work)
        return work()

    assert persist(store.ask, store.deadline, tell=store.tell, together=on_first) == "here"
    assert len(together) == 3 * (store.asked - 1), "whether it is over, what is told, the wait"


def test_a_signal_ends_a_wait_of_hours_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the signal can end it in time: each slice of the wait is an hour long.

    It comes until it is heard: one that comes just before a sleep begins does not end it.
    """
    monkeypatch.setattr(retries, "_FIRST_WAIT", 7200.0)
    monkeypatch.setattr(retries, "_LONGEST_WAIT", 7200.0)
    monkeypatch.setattr(retries, "_SLICE", 3600.0)
    waiting, heard = threading.Event(), threading.Event()

    def on_signal(*_: object) -> None:
        if not heard.is_set():
            heard.set()
            raise KeyboardInterrupt

    def interrupt() -> None:
        waiting.wait()
        while not heard.wait(0.05):
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, on_signal)
    other = threading.Thread(target=interrupt)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            persist(AwayUntil().ask, Deadline(), seconds=1e6, tell=lambda *_: waiting.set())
        other.join()
    finally:
        signal.signal(signal.SIGINT, before)
