"""How a call to a store is tried again: one policy for all of them."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


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

    Waits double, and each is by chance up to a half shorter: others ask, too.

    Args:
        passes: whether an error may be gone at the next try.
        tries: at most, the first one included.
        first: seconds of the first wait, at most.
        longest: seconds of any wait, at most.
        pause: waits so many seconds.

    Raises:
        Exception: that of the last try, or the first one that does not pass.
    """
    from tenacity import (
        Retrying,
        retry_if_exception,
        stop_after_attempt,
        wait_exponential,
        wait_random_exponential,
    )

    fixed = wait_exponential(multiplier=first / 2, max=longest / 2)
    by_chance = wait_random_exponential(multiplier=first / 2, max=longest / 2)
    policy = Retrying(
        retry=retry_if_exception(passes),
        stop=stop_after_attempt(tries),
        wait=fixed + by_chance,
        sleep=pause,
        reraise=True,
    )
    return policy(call)
