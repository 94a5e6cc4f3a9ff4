"""Layers that the families share: entity embeddings, and dropout whose masks are drawn outside."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Masks:
    """The microbatches of a pass that trains: draws dropout masks as a function of (seed, step,
    microbatch), the same in any world.

    ``seeds[i]`` is the seed of the i-th microbatch, which has ``rows[i]`` rows.
    """

    seeds: tuple[int, ...]
    rows: tuple[int, ...]
    drops: bool = True
    """False: nothing is dropped out."""

    def draw(self, layer: int, width: int, rate: float) -> torch.Tensor:
        """[sum(rows), 1, width]: 0, or 1 / (1 - rate); shared by the members of an ensemble."""
        if not self.drops:
            return torch.ones(sum(self.rows), 1, width)
        parts = []
        for seed, rows in zip(self.seeds, self.rows, strict=True):
            generator = torch.Generator().manual_seed((seed * 31 + layer) % 2**63)
            parts.append(torch.rand(rows, 1, width, generator=generator))
        return (torch.cat(parts) >= rate).float() / (1 - rate)


class EntityEmbeddings(nn.Module):
    """Categorical [n, c] int32 -> [n, sum of widths]; code 0 is null or unknown."""

    def __init__(self, cardinalities: Sequence[int], limit: int) -> None:
        super().__init__()
        widths = [min(limit, math.ceil(1.6 * size**0.56)) for size in cardinalities]
        self.tables = nn.ModuleList(
            nn.Embedding(size, width) for size, width in zip(cardinalities, widths, strict=True)
        )
        for table in self.tables:
            nn.init.normal_(table.weight, std=0.1)  # pyright: ignore[reportArgumentType]  an Embedding's weight is a Tensor
        self.width = sum(widths)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        if not self.tables:
            return torch.zeros(len(codes), 0, device=codes.device)
        parts = [table(codes[:, column]) for column, table in enumerate(self.tables)]
        return torch.cat(parts, dim=1)
