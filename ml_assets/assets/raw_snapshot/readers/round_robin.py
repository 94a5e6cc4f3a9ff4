"""Looks at partitions in turn, if a look at all of them would take too long.

The newest are looked at each time, the others in turn for as long as one look may take. Until its
turn comes, a partition counts as it was at its last look.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from ml_assets.assets.raw_snapshot.readers.look import Key, Looked
from ml_assets.assets.raw_snapshot.readers.seen import Seen
from ml_assets.errors import SourceError

NEWEST = 2
"""Partitions that are looked at each time: most late rows are of the period that has just ended."""
SECONDS = 5.0
"""A look begins no other partition after that: with a tick each 30 s, a sixth of the time."""
_NOTHING = ""
"""The stamp of a partition that is not there."""
_REFUSED = "refused"
"""Holds the message, in place of the receipt of a partition that could not be read."""


def look_in_turn(
    places: Mapping[Key, str],
    look: Callable[[Key], str | None],
    read: Callable[[Key], dict[str, Any]],
    seen: Seen,
    now: datetime,
) -> Looked:
    """Look at the partitions whose turn it is; return what is known of all.

    Args:
        places: what each is remembered by, the oldest first.
        look: its stamp, which changes when it does; None: it is not there.
        read: its receipt; asked where the stamp is new, and where it was refused.
    """
    before = seen.known(places.values())
    turns = {key: before[place].turn for key, place in places.items() if place in before}
    stamps: dict[str, str] = {}
    for key in _in_turn(tuple(places), turns):
        place = places[key]
        known, stamp = before.get(place), look(key) or _NOTHING
        stamps[place] = stamp
        receipt = known.receipt if known and known.stamp == stamp else None
        if stamp != _NOTHING and (receipt is None or _REFUSED in receipt):
            seen.pass_turn([place])  # first: if reading it ends the process, the next one follows
            seen.look({place: stamp}, now)
            seen.keep(place, stamp, _receipt_or_refusal(read, key))
    seen.look(stamps, now)
    seen.pass_turn(stamps)
    return _remembered(places, seen)


def _in_turn(keys: Sequence[Key], turns: Mapping[Key, int]) -> Iterator[Key]:
    """The keys to look at now: the newest, one of the others at least, and what time allows."""
    newest = reversed(keys[-NEWEST:])
    others = sorted(reversed(keys[:-NEWEST]), key=lambda key: turns.get(key, 0))
    end = time.monotonic() + SECONDS
    for number, key in enumerate((*newest, *others)):
        if number > NEWEST and time.monotonic() >= end:
            return
        yield key


def _receipt_or_refusal(read: Callable[[Key], dict[str, Any]], key: Key) -> dict[str, Any]:
    try:
        return read(key)
    except SourceError as error:
        return {_REFUSED: str(error)}


def _remembered(places: Mapping[Key, str], seen: Seen) -> Looked:
    known = seen.known(places.values())
    found = {key: known[place] for key, place in places.items() if place in known}
    receipts = {key: one.receipt for key, one in found.items() if one.receipt}
    absent = {key for key, one in found.items() if one.stamp == _NOTHING}

    def receipt(key: Key) -> dict[str, Any]:
        kept = dict(receipts[key])
        if _REFUSED in kept:
            raise SourceError(kept[_REFUSED])
        return kept

    later = tuple(key for key in places if key not in receipts and key not in absent)
    return Looked(tuple(receipts), {}, receipt, later)
