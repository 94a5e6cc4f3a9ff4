"""TabM: one network that is an ensemble - members share the weights, each with its own adapters.

Source: Gorishniy, Kotelnikov, Babenko, "TabM: Advancing Tabular Deep Learning with
Parameter-Efficient Ensembling" (2024), the BatchEnsemble variant with the first adapter drawn at
random and the others at one.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from ml_assets.spec.training import TabM
from ml_assets.training.models.layers import EntityEmbeddings, Masks
from ml_assets.training.models.network import Network


class EnsembleLinear(nn.Module):
    """``(x * r) W^T * s + b`` for each member: x [n, k, a] -> [n, k, b]."""

    not_decayed = ("r", "s", "bias")

    def __init__(self, inputs: int, outputs: int, members: int, *, random_adapter: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        self.r = nn.Parameter(torch.ones(members, inputs))
        if random_adapter:
            with torch.no_grad():
                self.r.copy_(torch.randint(0, 2, (members, inputs)) * 2.0 - 1.0)
        self.s = nn.Parameter(torch.ones(members, outputs))
        bound = 1 / math.sqrt(max(1, inputs))
        self.bias = nn.Parameter(torch.empty(members, outputs).uniform_(-bound, bound))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x * self.r, self.weight) * self.s + self.bias


class TabMNetwork(Network):
    """Logits [n, members, outputs]; each member has an output layer of its own."""

    not_decayed = ("output_bias",)

    def __init__(
        self, spec: TabM, numeric: int, cardinalities: Sequence[int], outputs: int
    ) -> None:
        super().__init__()
        self.spec = spec
        self.embeddings = EntityEmbeddings(cardinalities, spec.embedding_limit)
        widths = [numeric + self.embeddings.width, *[spec.width] * spec.depth]
        self.layers = nn.ModuleList(
            EnsembleLinear(a, b, spec.members, random_adapter=number == 0)
            for number, (a, b) in enumerate(pairwise(widths))
        )
        bound = 1 / math.sqrt(spec.width)
        self.output = nn.Parameter(
            torch.empty(spec.members, spec.width, outputs).uniform_(-bound, bound)
        )
        self.output_bias = nn.Parameter(torch.zeros(spec.members, outputs))

    def forward(
        self, numeric: torch.Tensor, categorical: torch.Tensor, masks: Masks | None
    ) -> torch.Tensor:
        flat = torch.cat([numeric, self.embeddings(categorical).to(numeric)], dim=1)
        x = flat.unsqueeze(1).expand(-1, self.spec.members, -1)
        for number, layer in enumerate(self.layers):
            x = torch.relu(layer(x))
            if masks and self.spec.dropout:
                x = x * masks.draw(number, self.spec.width, self.spec.dropout).to(x)
        return _each_member(x, self.output) + self.output_bias

    def units(self) -> Sequence[nn.Module]:
        return list(self.layers)


def _each_member(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """[n, k, w] by [k, w, o] -> [n, k, o], each member by its own matrix."""
    if weight.shape[-1] == 1:  # a product of matrices takes three times as long for one column
        return (x * weight[..., 0]).sum(-1, keepdim=True)
    return torch.einsum("nkw,kwo->nko", x, weight)
