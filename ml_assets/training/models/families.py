"""The families of models, by the name in the spec."""

from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

import torch

from ml_assets.spec.gpt import Gpt
from ml_assets.spec.training import Boosted, Mlp, ModelSpec, Module, TabM, Task, outputs_of
from ml_assets.spec.training_program import Preprocessing, Request, ShardSchema
from ml_assets.training.models.gpt import GptNetwork
from ml_assets.training.models.mlp import MlpNetwork
from ml_assets.training.models.network import Network
from ml_assets.training.models.tabm import TabMNetwork
from ml_assets.training.models.team import Columns, TeamCode, TeamNetwork
from ml_assets.training.stop import BadRequest


def build(
    spec: ModelSpec,
    preprocessing: Preprocessing,
    task: Task,
    classes: Sequence[str],
    code: TeamCode | None = None,
) -> Network:
    """A network with real initial values, drawn from torch's global generator.

    Args:
        code: of a team's own network.

    Raises:
        BadRequest: the family is none of networks, or a team's own network cannot be built.
    """
    if isinstance(spec, Boosted):
        raise BadRequest(
            f"{spec.family} is not a network: its trees are grown by training/boosting."
        )
    if isinstance(spec, Gpt):
        if preprocessing.tokens is None:
            raise BadRequest("A language model reads tokens; this training set has none.")
        return GptNetwork(spec, preprocessing.tokens.size)
    if isinstance(spec, Module):
        if code is None:
            raise BadRequest(f"The request has no code of {spec.module}: nothing can be built.")
        return TeamNetwork(spec, code, Columns.of(preprocessing, task, classes))
    numeric = len(preprocessing.numeric) + len(preprocessing.null_flags)
    cardinalities = [len(column.vocabulary) + 1 for column in preprocessing.categorical]
    outputs = outputs_of(task, classes)
    match spec:
        case Mlp():
            return MlpNetwork(spec, numeric, cardinalities, outputs)
        case TabM():
            return TabMNetwork(spec, numeric, cardinalities, outputs)
        case _:
            assert_never(spec)


def code_of(request: Request) -> TeamCode | None:
    """The code that came with a request, ready to be imported; it lies beside the events."""
    if request.code is None:
        return None
    return TeamCode.written(request.code, Path(request.output.events).parent)


def fresh_network(
    spec: ModelSpec, seed: int, schema: ShardSchema, code: TeamCode | None = None
) -> Network:
    """The network before its first step: equal wherever spec, seed and schema are."""
    torch.manual_seed(seed)
    network = build(spec, schema.preprocessing, schema.task, schema.classes, code)
    set_output_bias(network, schema.task, schema.label_rate)
    return network


def set_output_bias(network: Network, task: Task, label_rate: Sequence[float]) -> None:
    """Begin at the base rate: the loss at initialization is the entropy of the labels.

    A standardized number begins at its mean, 0; a score says nothing but the order.
    """
    rates = torch.tensor(label_rate, dtype=torch.float64).clamp(1e-6, 1 - 1e-6)
    match task:
        case "binary":
            bias = torch.log(rates / (1 - rates))
        case "multiclass":
            bias = torch.log(rates)
        case "language_model":
            never = torch.log(torch.tensor(1e-6, dtype=torch.float64))  # what pads the words, too
            bias = never.repeat(network.output_bias.shape[-1])
            bias[: len(rates)] = torch.log(rates)
        case "regression" | "ranking":
            bias = torch.zeros(1)
        case _:
            assert_never(task)
    with torch.no_grad():
        network.output_bias.copy_(bias.to(network.output_bias.dtype).expand_as(network.output_bias))


def predictions(logits: torch.Tensor, task: Task) -> torch.Tensor:
    """The mean of what the members say, [n, outputs] float64.

    Probabilities (binary, multiclass), standardized values (regression), scores (ranking) or the
    nats of a window (language_model).
    """
    wide = logits.double()
    match task:
        case "binary":
            each = torch.sigmoid(wide)
        case "multiclass":
            each = torch.softmax(wide, dim=-1)
        case "regression" | "ranking" | "language_model":
            each = wide
        case _:
            assert_never(task)
    return each.mean(dim=1)
