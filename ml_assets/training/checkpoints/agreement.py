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
    try:
        said = _Said(work())
    except (MlAssetsError, Stopped, OSError) as error:
        said = _Said(error=error)
    heard: list[_Said | None] = [None] * ranks.world
    dist.all_gather_object(heard, said, group=ranks.side)
    answers = [one for one in heard if one is not None]
    for one in answers:
        if one.error is not None:
            raise one.error
    return [one.value for one in answers]
