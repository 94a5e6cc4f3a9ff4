"""The families of models, by the name in the spec."""

from collections.abc import Sequence

import torch

from ml_assets.spec.program import Preprocessing
from ml_assets.spec.training import Mlp, ModelSpec, Task
from ml_assets.training.models.mlp import MlpNetwork
from ml_assets.training.models.tabm import TabMNetwork

Network = MlpNetwork | TabMNetwork
"""(numeric [n, f], categorical [n, c], keep | None) -> logits [n, members, outputs]."""


def build(
    spec: ModelSpec, preprocessing: Preprocessing, task: Task, classes: Sequence[str]
) -> Network:
    """A network with real initial values, drawn from torch's global generator."""
    numeric = len(preprocessing.numeric) + len(preprocessing.null_flags)
    cardinalities = [len(column.vocabulary) + 1 for column in preprocessing.categorical]
    outputs = 1 if task == "binary" else len(classes)
    kind = MlpNetwork if isinstance(spec, Mlp) else TabMNetwork
    return kind(spec, numeric, cardinalities, outputs)  # pyright: ignore[reportArgumentType]  the family decides both


def set_output_bias(network: Network, task: Task, label_rate: Sequence[float]) -> None:
    """Begin at the base rate: the loss at initialization is the entropy of the labels."""
    rates = torch.tensor(label_rate, dtype=torch.float64).clamp(1e-6, 1 - 1e-6)
    bias = torch.log(rates / (1 - rates)) if task == "binary" else torch.log(rates)
    with torch.no_grad():
        network.output_bias.copy_(bias.to(network.output_bias.dtype).expand_as(network.output_bias))


def probabilities(logits: torch.Tensor, task: Task) -> torch.Tensor:
    """The mean of the members' probabilities: [n, 1] (binary) or [n, k], float64."""
    wide = logits.double()
    each = torch.sigmoid(wide) if task == "binary" else torch.softmax(wide, dim=-1)
    return each.mean(dim=1)
