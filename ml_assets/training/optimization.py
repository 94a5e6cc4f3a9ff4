"""AdamW and its schedule: the learning rate is a pure function of the step."""

import math

import torch
from torch import nn

from ml_assets.spec.training import TrainingSpec

_NOT_DECAYED = ("embeddings", "bias", ".r", ".s")


def make_optimizer(network: nn.Module, spec: TrainingSpec) -> torch.optim.AdamW:
    """AdamW; weights decay, but biases, adapters and embeddings do not."""
    named = list(network.named_parameters())
    free = [p for name, p in named if any(part in name for part in _NOT_DECAYED)]
    decayed = [p for name, p in named if not any(part in name for part in _NOT_DECAYED)]
    groups = [
        {"params": decayed, "weight_decay": spec.weight_decay},
        {"params": free, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=spec.learning_rate)


def learning_rate(spec: TrainingSpec, step: int, steps: int) -> float:
    """Linear warmup over ``warmup`` of all steps, then a cosine to 0."""
    warm = max(1, round(spec.warmup * steps))
    if step < warm:
        return spec.learning_rate * (step + 1) / warm
    done = (step - warm) / max(1, steps - warm)
    return spec.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
