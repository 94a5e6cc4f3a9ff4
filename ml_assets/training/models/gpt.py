"""A decoder-only transformer over tokens (Radford et al., 2019; Touvron et al., 2023).

Rotary positions, RMS norms before each part, no biases except the output's, tied embeddings. For
each window it returns the nats of its targets: the logits of a whole window are never in memory.
"""

import math
from collections.abc import Sequence
from types import MappingProxyType

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, linear, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from ml_assets.spec.gpt import Gpt, padded
from ml_assets.training.models.layers import Masks
from ml_assets.training.models.network import Network

_LOGITS_AT_ONCE = 1 << 23
"""Numbers of logits that are held at once."""
_ROTARY_BASE = 10_000.0


def flops_per_token(spec: Gpt, vocabulary: int, context: int) -> int:
    """Floating-point operations of one token, forward and backward: ``6 N + 12 L C W``.

    N are the weights that a token is multiplied by (the tied table once, as the output), L the
    blocks, C the context, W the width. A product takes 2 operations for each weight forward and 4
    backward; the attention of a token, to every place of its window, 4 C W for each block forward
    (scores and values) and twice that backward. That half of the scores are masked is not taken
    off, nor is what a checkpoint computes again counted: these are the model's own (Chowdhery et
    al., "PaLM", 2022, appendix B).
    """
    weights = 12 * spec.depth * spec.width**2 + padded(vocabulary) * spec.width
    return 6 * weights + 12 * spec.depth * context * spec.width


def model_flops_utilization(tokens_per_second: float, flops: int, peak: float) -> float:
    """MFU: ``tokens/s x flops_per_token / peak``, the share of a device's peak that is the model's.

    Args:
        flops: of one token, see ``flops_per_token``.
        peak: operations a second, as the maker of the device states them for the precision.
    """
    return tokens_per_second * flops / peak


class Block(nn.Module):
    """Attention, then two layers four times as wide; each adds to what comes in."""

    def __init__(self, spec: Gpt) -> None:
        super().__init__()
        width = spec.width
        self.heads = spec.heads
        self.before_attention = nn.RMSNorm(width, eps=1e-6)
        self.mixing = nn.Linear(width, 3 * width, bias=False)
        self.mixed = nn.Linear(width, width, bias=False)
        self.before_layers = nn.RMSNorm(width, eps=1e-6)
        self.wider = nn.Linear(width, 4 * width, bias=False)
        self.narrower = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        """[n, t, width] and the turns [2, t, width / heads] -> [n, t, width]."""
        n, length, width = x.shape
        parts = self.mixing(self.before_attention(x)).view(n, length, 3, -1, width // self.heads)
        query, key, value = (one.transpose(1, 2) for one in parts.unbind(2))
        seen = scaled_dot_product_attention(
            _turned(query, turn), _turned(key, turn), value, is_causal=True
        )
        x = x + self.mixed(seen.transpose(1, 2).reshape(n, length, -1))
        return x + self.narrower(gelu(self.wider(self.before_layers(x)), approximate="tanh"))


class GptNetwork(Network):
    """(numeric [n, 0], windows [n, context + 1]) -> the nats of each window, [n, 1, 1].

    A window is the token before, then the targets; -1 is none. See ``rows.tokens``.
    """

    not_decayed = ("output_bias",)
    inputs_by_name = False
    parts = MappingProxyType(
        {"mixing": "heads", "mixed": "rows", "wider": "columns", "narrower": "rows"}
    )

    def __init__(self, spec: Gpt, vocabulary: int) -> None:
        super().__init__()
        self.spec, self.vocabulary = spec, vocabulary
        self.embedding = nn.Embedding(padded(vocabulary), spec.width)
        self.blocks = nn.ModuleList(Block(spec) for _ in range(spec.depth))
        self.last_norm = nn.RMSNorm(spec.width, eps=1e-6)
        self.output_bias = nn.Parameter(torch.zeros(1, padded(vocabulary)))
        self.apply(self._begin)

    def _begin(self, module: nn.Module) -> None:
        """Normal, 0.02; what adds to the sum is smaller, the more blocks there are."""
        if isinstance(module, nn.Embedding | nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, Block):
            for layer in (module.mixed, module.narrower):
                nn.init.normal_(layer.weight, std=0.02 / math.sqrt(2 * self.spec.depth))

    def forward(
        self, numeric: torch.Tensor, categorical: torch.Tensor, masks: Masks | None
    ) -> torch.Tensor:
        hidden = self.hidden(categorical[:, :-1].clamp(min=0))
        targets = categorical[:, 1:]
        table, bias = self.embedding.weight, self.output_bias[0]
        size = max(1, _LOGITS_AT_ONCE // (table.shape[0] * targets.shape[1]))
        parts = [
            checkpoint(
                _nats,
                *chunk,
                table,
                bias,
                self.vocabulary,
                use_reentrant=False,
                preserve_rng_state=False,
            )
            for chunk in zip(hidden.split(size), targets.split(size), strict=True)
        ]
        return torch.cat([part[:, None, None] for part in parts])  # no view: FSDP hooks it

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        """[n, t] -> [n, t, width], each place of itself and of those before it."""
        x = self.embedding(tokens)
        turn = _turns(tokens.shape[1], self.spec.width // self.spec.heads, x)
        for block in self.blocks:
            x = block(x, turn)
        return self.last_norm(x)

    @torch.no_grad()
    def continued(self, tokens: torch.Tensor, more: int, context: int, seed: int) -> torch.Tensor:
        """[n, t] -> [n, t + more]: drawn by what the network says of the next one."""
        generator = torch.Generator(tokens.device).manual_seed(seed)
        for _ in range(more):
            last = self.hidden(tokens[:, -context:])[:, -1]
            logits = linear(last, self.embedding.weight, self.output_bias[0])[:, : self.vocabulary]
            drawn = torch.multinomial(logits.float().softmax(-1), 1, generator=generator)
            tokens = torch.cat([tokens, drawn.to(tokens)], dim=1)
        return tokens

    def units(self) -> Sequence[nn.Module]:
        return list(self.blocks)


def _nats(
    hidden: torch.Tensor,
    targets: torch.Tensor,
    table: torch.Tensor,
    bias: torch.Tensor,
    vocabulary: int,
) -> torch.Tensor:
    """[n, t, width] and the targets [n, t] -> [n] the nats of each window's targets."""
    logits = linear(hidden, table, bias)[..., :vocabulary].float()
    each = cross_entropy(
        logits.flatten(0, 1), targets.flatten().long(), ignore_index=-1, reduction="none"
    )
    return each.view(targets.shape).sum(1)


def _turns(length: int, size: int, like: torch.Tensor) -> torch.Tensor:
    """[2, length, size] cosines and sines by position (Su et al., "RoFormer", 2021)."""
    half = torch.arange(0, size, 2, device=like.device, dtype=torch.float32)
    place = torch.arange(length, device=like.device, dtype=torch.float32)
    angles = torch.outer(place, _ROTARY_BASE ** (-half / size)).repeat(1, 2)
    return torch.stack([angles.cos(), angles.sin()]).to(like.dtype)


def _turned(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """[n, heads, t, size], each pair of numbers turned by its position."""
    one, other = x.chunk(2, dim=-1)
    return x * turn[0] + torch.cat([-other, one], dim=-1) * turn[1]
