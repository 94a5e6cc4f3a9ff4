"""Asks a store again and again, until a deadline that a notice to stop moves closer."""

import random
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from ml_assets.errors import StoreAway, StoreRefuses

T = TypeVar("T")
AWAY_SECONDS = 900.0
"""A store may be away so long before a pod gives up: a quarter of an hour."""
_FIRST_WAIT, _LONGEST_WAIT, _SLICE = 1.0, 15.0, 0.2


class Deadline:
    """The time at which a pod has to be done; a notice moves it closer, never away.

    A signal handler moves it: it therefore holds a number, and no lock.
    """

    def __init__(self) -> None:
        self.at = float("inf")

    def within(self, seconds: float) -> None:
        """Leave so many seconds from now on, or fewer."""
        self.at = min(self.at, time.monotonic() + seconds)

    def wait(self, seconds: float) -> None:
        """Wait so long, or until the deadline comes, which may move closer meanwhile."""
        end = time.monotonic() + seconds
        while (left := min(end, self.at) - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE))


class Patience:
    """Waits longer and longer between two tries, until its time is over.

    Args:
        seconds: to ask again; less where the deadline comes before.
    """

    def __init__(self, seconds: float = AWAY_SECONDS, deadline: Deadline | None = None) -> None:
        self._deadline = deadline or Deadline()
        self._until, self._pause = time.monotonic() + seconds, _FIRST_WAIT

    def wait(self, error: Exception) -> bool:
        """Wait a while, by chance a little less: others ask, too. False: the time is over."""
        left = min(self._until, self._deadline.at) - time.monotonic()
        if left <= 0:
            return False
        pause = min(left, self._pause * random.uniform(0.5, 1.0))
        sys.stderr.write(f"[staging] {error} It is asked again in {pause:.1f} s.\n")
        self._deadline.wait(pause)
        self._pause = min(2 * self._pause, _LONGEST_WAIT)
        return True


def persist(
    work: Callable[[], T], deadline: Deadline | None = None, seconds: float = AWAY_SECONDS
) -> T:
    """Do the work until the store answers; what it comes to.

    Args:
        seconds: see ``Patience``.

    Raises:
        StoreRefuses: to ask again is no use.
        StoreAway: it did not answer in time.
    """
    patience = Patience(seconds, deadline)
    while True:
        try:
            return work()
        except StoreRefuses:
            raise
        except StoreAway as error:
            if not patience.wait(error):
                raise
