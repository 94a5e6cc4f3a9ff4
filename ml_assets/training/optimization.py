"""Optimizers and schedules by name: the learning rate is a pure function of the step."""

import math
from typing import Any, assert_never

import torch
from torch import nn
from torch.optim import NAdam, Optimizer

from ml_assets.spec.training import DEFAULT_MOMENTUM, TrainingSpec
from ml_assets.training.models.network import Network

_RATE = "learning_rate"
_BETAS, _EPS = (0.9, 0.999), 1e-8
_NEVER_DECAYED = (nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.RMSNorm)


def make_optimizer(network: nn.Module, spec: TrainingSpec) -> Optimizer:
    """The optimizer of the spec; only matrices decay, but for a network with groups of its own.

    The weight decay of sgd is part of the gradient; the others shrink the weights themselves.
    """
    groups = [{k: v for k, v in group.items() if k != _RATE} for group in _groups(network, spec)]
    rate, betas, eps = spec.learning_rate, spec.betas or _BETAS, spec.eps or _EPS
    # foreach: one call for all parameters; with shards a step is four times as fast, bit for bit
    match spec.optimizer:
        case "adamw":
            fused = next(network.parameters()).is_cuda  # one kernel; on a CPU it is no faster
            return torch.optim.AdamW(
                groups, lr=rate, betas=betas, eps=eps, fused=fused, foreach=not fused
            )
        case "sgd":
            momentum = DEFAULT_MOMENTUM if spec.momentum is None else spec.momentum
            return torch.optim.SGD(groups, lr=rate, momentum=momentum, nesterov=True, foreach=True)
        case "nadam":
            return NAdam(
                groups, lr=rate, betas=betas, eps=eps, decoupled_weight_decay=True, foreach=True
            )
        case "adafactor":
            return torch.optim.Adafactor(groups, lr=rate)
        case _:
            assert_never(spec.optimizer)


def rates_of(network: nn.Module, spec: TrainingSpec) -> list[float]:
    """The multiple of the spec's learning rate that each parameter group learns at."""
    return [float(group.get(_RATE, 1.0)) for group in _groups(network, spec)]


def _groups(network: nn.Module, spec: TrainingSpec) -> list[dict[str, Any]]:
    own = network.own_groups() if isinstance(network, Network) else None
    if own is not None:
        return [{"weight_decay": spec.weight_decay, **group} for group in own]
    decayed, free = parameters_by_decay(network)
    return [
        {"params": decayed, "weight_decay": spec.weight_decay},
        {"params": free, "weight_decay": 0.0},
    ]


def parameters_by_decay(network: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The parameters that decay, and those that do not.

    Embeddings, norms, vectors and biases do not. A module whose biases or scales have two
    dimensions (one row for each member of an ensemble) names them in ``not_decayed``.
    """
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for owner in network.modules():
        named = {"bias", *getattr(owner, "not_decayed", ())}
        for name, parameter in owner.named_parameters(recurse=False):
            kept = isinstance(owner, _NEVER_DECAYED) or name in named or parameter.dim() < 2
            (free if kept else decayed).append(parameter)
    return decayed, free


def learning_rate(spec: TrainingSpec, step: int, steps: int) -> float:
    """Linear warmup over ``warmup`` of all steps, then what the schedule says."""
    warm = max(1, round(spec.warmup * steps))
    if step < warm:
        return spec.learning_rate * (step + 1) / warm
    done = (step - warm) / max(1, steps - warm)
    match spec.schedule:
        case "constant":
            return spec.learning_rate
        case "linear":
            return spec.learning_rate * (1 - done)
        case "cosine":
            return spec.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
        case _:
            assert_never(spec.schedule)
