"""The retries of a store: a few tries for one call, or for as long as a store may be down.

Waits grow, and each is randomly shortened by up to half, because others ask, too.
"""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ml_assets.errors import StoreAway, StoreRefuses

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")
AWAY_SECONDS = 900.0
"""A store may be away so long before it is given up: a quarter of an hour."""
_FIRST_WAIT, _LONGEST_WAIT, _SLICE = 1.0, 15.0, 0.2


class Deadline:
    """The time at which work has to be done; a notice moves it closer, never away.

    A signal handler may move it: it therefore holds a number, and no lock.

    Args:
        clock: monotonic seconds.
        pause: waits so many seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.at = float("inf")
        self.clock = clock
        self._pause = pause

    def within(self, seconds: float) -> None:
        """Leave so many seconds from now on, or fewer."""
        self.at = min(self.at, self.clock() + seconds)

    def wait(self, seconds: float) -> None:
        """Wait so long, or until the deadline comes, which may move closer meanwhile.

        A signal whose handler raises ends the wait at once.
        """
        end = self.clock() + seconds
        while (left := min(end, self.at) - self.clock()) > 0:
            self._pause(min(left, _SLICE))


def again(
    call: Callable[[], T],
    *,
    passes: Callable[[BaseException], bool],
    tries: int,
    first: float,
    longest: float = 60.0,
    pause: Callable[[float], None] = time.sleep,
) -> T:
    """Call until there is an answer.

    Args:
        passes: whether an error may be gone at the next try.
        tries: at most, the first one included.
        first: seconds of the first wait, at most.
        longest: seconds of any wait, at most.
        pause: waits so many seconds.

    Raises:
        Exception: that of the last try, or the first one that does not pass.
    """
    from tenacity import Retrying, retry_if_exception, stop_after_attempt

    policy = Retrying(
        retry=retry_if_exception(passes),
        stop=stop_after_attempt(tries),
        wait=waits(first, longest),
        sleep=pause,
        reraise=True,
    )
    return policy(call)


def is_outage(error: BaseException) -> bool:
    """Return whether an error says that a store is away, and may come back."""
    return isinstance(error, StoreAway) and not isinstance(error, StoreRefuses)


def say(error: BaseException, seconds: float) -> None:
    """Say on stderr that work is tried again after so many seconds."""
    sys.stderr.write(f"[store] {error} It is asked again in {seconds:.1f} s.\n")


def alone(work: Callable[[], T]) -> T:
    """Do the work here."""
    return work()


def persist(
    work: Callable[[], T],
    deadline: Deadline | None = None,
    seconds: float = AWAY_SECONDS,
    *,
    passes: Callable[[BaseException], bool] = is_outage,
    tell: Callable[[BaseException, float], None] = say,
    together: Callable[[Callable[[], Any]], Any] = alone,
) -> T:
    """Do the work until the store answers.

    Args:
        deadline: ends the asking, too, where it comes before.
        seconds: to ask again.
        passes: whether an error may be gone at the next try.
        tell: hears before each wait why, and for how many seconds at most.
        together: what decides, tells and waits for all that do this work in step.

    Raises:
        StoreRefuses: to ask again is no use.
        StoreAway: it did not answer in time.
    """
    from tenacity import Retrying, retry_if_exception

    limit = deadline or Deadline()
    until = limit.clock() + seconds

    def over(_: "RetryCallState") -> bool:
        return together(lambda: limit.clock() >= min(until, limit.at))

    def told(state: "RetryCallState") -> None:
        error = state.outcome.exception() if state.outcome else None
        if error is not None:
            together(lambda: tell(error, state.upcoming_sleep))

    policy = Retrying(
        retry=retry_if_exception(passes),
        stop=over,
        wait=waits(_FIRST_WAIT, _LONGEST_WAIT),
        before_sleep=told,
        sleep=lambda wait: together(lambda: limit.wait(min(wait, until - limit.clock()))),
        reraise=True,
    )
    return policy(work)


def waits(first: float, longest: float) -> Callable[["RetryCallState"], float]:
    """Waits that double up to the longest, each by chance up to a half shorter."""
    from tenacity import wait_exponential, wait_random_exponential

    fixed = wait_exponential(multiplier=first / 2, max=longest / 2)
    return fixed + wait_random_exponential(multiplier=first / 2, max=longest / 2)
