"""A plain multi-layer perceptron with entity embeddings."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from ml_assets.spec.training import Mlp
from ml_assets.training.models.layers import EntityEmbeddings, Masks
from ml_assets.training.models.network import Network


class MlpNetwork(Network):
    """One member: logits are [n, 1, outputs]."""

    not_decayed = ("output_bias",)

    def __init__(self, spec: Mlp, numeric: int, cardinalities: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.spec = spec
        self.embeddings = EntityEmbeddings(cardinalities, spec.embedding_limit)
        widths = [numeric + self.embeddings.width, *[spec.width] * spec.depth]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.output = nn.Linear(spec.width, outputs, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(1, outputs))

    def forward(
        self, numeric: torch.Tensor, categorical: torch.Tensor, masks: Masks | None
    ) -> torch.Tensor:
        x = torch.cat([numeric, self.embeddings(categorical).to(numeric)], dim=1)
        for number, layer in enumerate(self.layers):
            x = torch.relu(layer(x))
            if masks and self.spec.dropout:
                x = x * masks.draw(number, self.spec.width, self.spec.dropout)[:, 0].to(x)
        return self.output(x).unsqueeze(1) + self.output_bias

    def units(self) -> Sequence[nn.Module]:
        return list(self.layers)
