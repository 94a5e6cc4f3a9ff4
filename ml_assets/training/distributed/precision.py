"""bf16 and fp16: the network computes with rounded weights, its own weights stay fp32.

Weights and inputs are rounded once, at the entrance, in every strategy alike: FSDP does so by its
policy, a replica by ``Lowered``. So a strategy does not change the numbers, in any precision.
"""

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.func import functional_call

from ml_assets.spec.training import Precision
from ml_assets.training.models import Network
from ml_assets.training.models.layers import Masks

_DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


class Lowered(nn.Module):
    """Calls a network with its weights and inputs rounded to ``dtype``; logits are fp32."""

    def __init__(self, network: Network, dtype: torch.dtype) -> None:
        super().__init__()
        self.network = network
        self.dtype = dtype

    def forward(
        self, numeric: torch.Tensor, categorical: torch.Tensor, masks: Masks | None
    ) -> torch.Tensor:
        low = {name: weight.to(self.dtype) for name, weight in self.network.named_parameters()}
        inputs = (numeric.to(self.dtype), categorical, masks)
        return functional_call(self.network, low, inputs).float()


def lowered(network: Network, precision: Precision) -> nn.Module:
    """What to call for logits: the network itself in fp32."""
    return network if precision == "fp32" else Lowered(network, _DTYPES[precision])


def fsdp_policy(precision: Precision, *, root: bool) -> MixedPrecisionPolicy:
    """Weights are gathered and used in the precision; gradients are summed, and logits, fp32."""
    if precision == "fp32":
        return MixedPrecisionPolicy()
    logits = torch.float32 if root else None
    return MixedPrecisionPolicy(_DTYPES[precision], torch.float32, logits)
