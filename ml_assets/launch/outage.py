"""A store that is away for a while is asked again: what runs elsewhere goes on meanwhile."""

import time
from collections.abc import Callable
from typing import TypeVar

from ml_assets.errors import StoreAway, StoreRefuses

T = TypeVar("T")
AWAY_SECONDS = 900.0
"""How long it may be away: as long as a pod that has something to hand over waits for it."""
_FIRST_WAIT, _LONGEST_WAIT, _SLICE = 1.0, 15.0, 0.2


def persist(
    asked: Callable[[], T],
    given_up: Callable[[], bool],
    warn: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> T:
    """What a question comes to, once the store answers.

    Args:
        asked: may be repeated.
        given_up: whether nobody waits for it any more.
        warn: told once that it is away.
        clock: monotonic seconds.
        pause: waits so many seconds.

    Raises:
        StoreRefuses: to ask again is no use.
        StoreAway: it did not answer in time, or nobody waits for it any more.
    """
    wait, until, warned = _FIRST_WAIT, clock() + AWAY_SECONDS, False
    while True:
        try:
            return asked()
        except StoreRefuses:
            raise
        except StoreAway as error:
            if not warned:
                warn(f"The object store is away, and is asked again: {error}")
                warned = True
            again = clock() + wait
            while clock() < again:
                if given_up() or clock() > until:
                    raise
                pause(_SLICE)
            wait = min(2 * wait, _LONGEST_WAIT)
