"""Which start of an attempt's processes this is, and whether there is anything left to do.

torchrun starts all processes again when one fails, whatever its reason. What a restart cannot mend
is in the attempt's events: the new processes read it and end at once as the old ones did.
"""

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from pydantic import ValidationError

from ml_assets.spec.program.events import Failed
from ml_assets.spec.program.exit_codes import EXIT_BUG, VERDICTS


def generation() -> int:
    """0 for the first start of an attempt's processes; counted by torchrun."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def ranks_here() -> range:
    """The ranks of this machine, whose files it sees, as torchrun numbered them."""
    first = int(os.environ.get("RANK", "0")) - int(os.environ.get("LOCAL_RANK", "0"))
    return range(first, first + int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def standing_verdict(
    failed: Sequence[Failed], world: int, here: Collection[int] = ()
) -> int | None:
    """The exit code that a new start would only repeat; None: it may mend what happened.

    A bug counts where every rank of the last start said why it ended: a rank that was killed says
    nothing, and what the others then met is no bug. Of several machines each hears its own ranks
    alone: there it counts when it came again.

    Args:
        failed: the attempt's error events.
        world: how many ranks there are.
        here: those of this machine.
    """
    # the last start that said anything: one that only repeated a verdict is silent
    spoke = max((event.generation for event in failed), default=0)
    last = [event for event in failed if event.generation == spoke]
    codes = {event.exit_code for event in last}
    if codes & VERDICTS:
        return min(codes & VERDICTS)
    before = [event for event in failed if event.generation == spoke - 1]
    again = bool(here) and _is_bug(last, here) and _is_bug(before, here)
    return EXIT_BUG if again or _is_bug(last, range(world)) else None


def _is_bug(failed: Sequence[Failed], ranks: Collection[int]) -> bool:
    """Whether every one of the ranks said why it ended, and one of them met a bug."""
    told = {event.rank for event in failed}
    return told >= set(ranks) and EXIT_BUG in {event.exit_code for event in failed}


def failures(events: Path) -> list[Failed]:
    """What every rank said of its failures in this attempt.

    Args:
        events: rank 0's file; the others' lie beside it.
    """
    found: list[Failed] = []
    for file in sorted(events.parent.glob(f"{events.stem}*{events.suffix}")):
        for line in file.read_bytes().splitlines():
            try:
                found.append(Failed.model_validate_json(line))
            except ValidationError:  # another kind, or a line that a kill has cut
                continue
    return found
