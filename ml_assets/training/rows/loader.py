"""A rank's share of a batch as the network sees it: changed, weighted, and read ahead of its step.

Changes and weights are functions of (seed, step, row): a microbatch draws from its own generator,
and neither the rank nor the number of ranks is in it.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from ml_assets.spec.augmentation import Augmentation, Curriculum
from ml_assets.training.models.layers import Masks
from ml_assets.training.models.network import Augment
from ml_assets.training.rows.arrays import Rows
from ml_assets.training.rows.batches import Batches, Tensors
from ml_assets.training.stop import TeamCodeFailed

_STREAM = 1_000_003
"""Sets the draws of changes apart from those of layers."""


class Share(NamedTuple):
    """One rank's share of a batch of a step."""

    rows: Tensors
    """As the network sees them."""
    masks: Masks
    counted: int
    """Rows that count; 0: none does."""
    weights: torch.Tensor | None = None
    """[n] what the curriculum lets each row weigh; None: 1."""
    others: torch.Tensor | None = None
    """[n] the row that each is mixed with; None: rows are whole."""
    own: torch.Tensor | None = None
    """[n] the share of the row itself in the mix."""

    def to(self, device: torch.device) -> "Share":
        """The same on a device."""
        moved = {
            name: tensor.to(device, non_blocking=True)
            for name in ("weights", "others", "own")
            if (tensor := getattr(self, name)) is not None
        }
        return self._replace(rows=self.rows.to(device), **moved)


@dataclass(frozen=True)
class Changes:
    """Holds what is done to rows before a step learns from them."""

    augmentation: Augmentation | None = None
    function: Augment | None = None
    """A team's own."""
    numbers: int = 0
    """The first columns of ``numeric``, which are no flags."""
    curriculum: Curriculum | None = None
    column: int = 0
    """That of the curriculum in ``numeric``."""

    def of(self, rows: Tensors, masks: Masks, counted: int, done: float) -> Share:
        """Change and weigh the rows of some microbatches.

        Args:
            done: the share of all steps that is done with this one.
        """
        share = Share(rows, masks, counted)
        if self.curriculum is not None:
            share = share._replace(weights=self._weights(self.curriculum, rows.numeric, done))
        if self.augmentation is None and self.function is None:
            return share
        numeric, categorical = rows.numeric.split(masks.rows), rows.categorical.split(masks.rows)
        parts = [self._changed(*one) for one in zip(numeric, categorical, masks.seeds, strict=True)]
        found = list(zip(*parts, strict=True))
        numeric, categorical = torch.cat(found[0]), torch.cat(found[1])
        share = share._replace(rows=replace(rows, numeric=numeric, categorical=categorical))
        if self.augmentation is None or not self.augmentation.mixup:
            return share
        return self._mixed(share, self.augmentation.mixup)

    def _weights(self, curriculum: Curriculum, numeric: torch.Tensor, done: float) -> torch.Tensor:
        place = torch.special.ndtr(numeric[:, self.column])
        if curriculum.first == "high":
            place = 1 - place
        come = place <= min(1.0, done / curriculum.until)
        return torch.where(come, 1.0, curriculum.weight_before)

    def _changed(
        self, numeric: torch.Tensor, categorical: torch.Tensor, seed: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows of one microbatch with noise, without what is hidden, and by the function."""
        generator = torch.Generator().manual_seed((seed * 31 + _STREAM) % 2**63)
        rows, numbers = len(numeric), self.numbers
        spec = self.augmentation or Augmentation.model_construct()
        if spec.noise:
            numeric = numeric.clone()
            numeric[:, :numbers] += spec.noise * torch.randn(rows, numbers, generator=generator)
        if spec.feature_dropout:
            drawn = torch.rand(rows, numbers + categorical.shape[1], generator=generator)
            hidden = drawn < spec.feature_dropout
            numeric = numeric.clone()
            numeric[:, :numbers].masked_fill_(hidden[:, :numbers], 0.0)
            categorical = categorical.masked_fill(hidden[:, numbers:], 0)
        if self.function is None:
            return numeric, categorical
        found = self.function(numeric.clone(), categorical.clone(), generator)
        if not _fits(found, numeric, categorical):
            raise TeamCodeFailed(
                "model.augmentation returned something else than numeric"
                f" {tuple(numeric.shape)} {numeric.dtype} and categorical"
                f" {tuple(categorical.shape)} {categorical.dtype}, as it got them."
            )
        return found

    def _mixed(self, share: Share, mixup: float) -> Share:
        """Each row mixed with another one of its microbatch."""
        others, own, first = [], [], 0
        taken = share.rows.categorical.clone()
        for seed, rows in zip(share.masks.seeds, share.masks.rows, strict=True):
            draw = np.random.default_rng([seed, _STREAM])
            others.append(torch.from_numpy(first + draw.permutation(rows)))
            own.append(torch.from_numpy(draw.beta(mixup, mixup, rows).astype(np.float32)))
            kept = torch.from_numpy(draw.random((rows, taken.shape[1]))) < own[-1][:, None]
            theirs = share.rows.categorical[others[-1]]
            taken[first : first + rows] = torch.where(kept, taken[first : first + rows], theirs)
            first += rows
        other, part = torch.cat(others), torch.cat(own)
        numeric = share.rows.numeric
        numeric = part[:, None] * numeric + (1 - part[:, None]) * numeric[other]
        rows = replace(share.rows, numeric=numeric, categorical=taken)
        return share._replace(rows=rows, others=other, own=part)


def _fits(found: object, numeric: torch.Tensor, categorical: torch.Tensor) -> bool:
    if not isinstance(found, tuple) or len(found) != 2:
        return False
    return all(
        isinstance(one, torch.Tensor) and (one.shape, one.dtype) == (like.shape, like.dtype)
        for one, like in zip(found, (numeric, categorical), strict=True)
    )


class Lane(NamedTuple):
    """Says whose shares they are: those of one rank of so many, which computes on a device."""

    rank: int
    world: int
    device: torch.device


class Loader:
    """The shares of one rank, in whichever order they are asked for; equal for equal numbers.

    Args:
        steps: of the whole training.
        ahead: whether a thread reads the batch that follows while one is computed. All is read in
            that thread then: one batch after the other.
    """

    def __init__(
        self, batches: Batches, changes: Changes, lane: Lane, steps: int, *, ahead: bool
    ) -> None:
        self._batches, self._changes, self._lane, self._steps = batches, changes, lane, steps
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rows") if ahead else None
        self._next: tuple[int, int] | None = None
        self._coming: Future[Share] | None = None

    def take(self, step: int, number: int) -> Share:
        """This rank's share of a batch of a step, where it computes."""
        if self._thread is None:
            return self._read(step, number).to(self._lane.device)
        coming = self._coming if self._next == (step, number) else None
        share = coming or self._thread.submit(self._read, step, number)
        more = number + 1 < self._batches.accumulate
        self._next = (step, number + 1) if more else (step + 1, 0)
        found = share.result()
        ends = self._next[0] >= self._steps
        self._coming = None if ends else self._thread.submit(self._read, *self._next)
        return found.to(self._lane.device)

    def first(self, count: int) -> Rows:
        """The first rows of the first batch, as they lie in the set."""
        if self._thread is None:
            return self._batches.first(count)
        return self._thread.submit(self._batches.first, count).result()

    def _read(self, step: int, number: int) -> Share:
        rows, masks, counted = self._batches.share(step, self._lane.rank, self._lane.world, number)
        share = self._changes.of(rows, masks, counted, (step + 1) / self._steps)
        pinned = self._thread is not None and self._lane.device.type == "cuda"
        return share._replace(rows=share.rows.pinned()) if pinned else share
