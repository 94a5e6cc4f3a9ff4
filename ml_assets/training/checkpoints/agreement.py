"""Ranks that do a piece of work together: all of them succeed, or all of them fail alike."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch.distributed as dist

from ml_assets.errors import MlAssetsError
from ml_assets.training.distributed.ranks import Ranks
from ml_assets.training.stop import Stopped

T = TypeVar("T")


@dataclass(frozen=True)
class _Said:
    """What a rank came to, as the others hear it."""

    value: Any = None
    error: MlAssetsError | Stopped | OSError | None = None


def agreed(ranks: Ranks, work: Callable[[], T]) -> list[T]:
    """Do the work on this rank and hear what the others came to, in the order of the ranks.

    One message over the side group, which no other thread may use at the time. An error of the
    program itself (any other exception) is raised on its rank alone, and ends the attempt.

    Raises:
        MlAssetsError, Stopped, OSError: the work failed on a rank: the first one's error, on all.
    """
    heard: list[_Said | None] = [None] * ranks.world
    dist.all_gather_object(heard, _said(work), group=ranks.side)
    answers = [one for one in heard if one is not None]
    for one in answers:
        if one.error is not None:
            raise one.error
    return [one.value for one in answers]


def of_first(ranks: Ranks, work: Callable[[], T]) -> T:
    """Do the work on the first rank, and hear on all what it came to; see ``agreed``.

    Its words alone travel: gathered, they would be padded for every rank, on every rank.
    """
    heard = [_said(work) if ranks.rank == 0 else None]
    dist.broadcast_object_list(heard, src=0, group=ranks.side)
    (said,) = heard
    assert said is not None
    if said.error is not None:
        raise said.error
    return said.value


def _said(work: Callable[[], Any]) -> _Said:
    try:
        return _Said(work())
    except (MlAssetsError, Stopped, OSError) as error:
        return _Said(error=error)
