"""The interface of every network, whatever its family: all that training knows of it."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import nn

from ml_assets.training.models.layers import Masks

Augment = Callable[[torch.Tensor, torch.Tensor, torch.Generator], tuple[torch.Tensor, torch.Tensor]]
"""(numeric [n, f], categorical [n, c], generator) -> the same two, changed."""
Part = Literal["heads", "columns", "rows"]
"""What of a layer ranks share: the outputs of its heads (queries, keys and values on top of each
other), its outputs, or its inputs."""


def is_large(layer: nn.Module) -> bool:
    """Return whether a layer is gathered by itself where it is sharded: that costs milliseconds a
    step."""
    return sum(weight.numel() for weight in layer.parameters()) >= _LARGE


_LARGE = 1_000_000
"""Parameters."""


class Network(nn.Module):
    """(numeric [n, f], categorical [n, c], masks | None) -> logits [n, members, outputs].

    A language model's categories are a window of tokens, its one output the nats of the window.
    """

    output_bias: nn.Parameter
    """[members or 1, outputs], added last: it begins at the base rate of the labels."""
    own_loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None
    """(logits [n, members, outputs], label [n]) -> [n]; None: the loss of the task."""
    own_augmentation: Augment | None = None
    """Changes the rows of a microbatch before a step learns from them; None: nothing does."""

    inputs_by_name = True
    """Weights of other columns and words fit by their names: ``embeddings`` and ``layers.0`` are
    there."""
    parts: Mapping[str, Part] = MappingProxyType({})
    """Layer of each unit -> how ranks share it; every matrix that decays is among them. Empty: the
    network cannot be shared so."""

    def forward(
        self, numeric: torch.Tensor, categorical: torch.Tensor, masks: Masks | None
    ) -> torch.Tensor:
        raise NotImplementedError  # each family fills it

    def units(self) -> Sequence[nn.Module]:
        """The layers, first to last: a large one is gathered by itself where it is sharded."""
        raise NotImplementedError  # each family fills it

    def own_groups(self) -> list[dict[str, Any]] | None:
        """Groups of parameters as an optimizer takes them; ``learning_rate`` is a multiple of the
        spec's. None: matrices decay, all learn alike."""
        return None
