"""The language model's family: its shape, by name or number by number."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from ml_assets.errors import counted
from ml_assets.spec.base import Frozen, Positive, unset

GPT_PRESETS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "1m": {"width": 128, "depth": 4, "heads": 4},
        "124m": {"width": 768, "depth": 12, "heads": 12},
        "350m": {"width": 1024, "depth": 24, "heads": 16},
        "1b": {"width": 2048, "depth": 18, "heads": 16},
    }
)
"""Name, for its parameters with a vocabulary of 50,257 words (1m: of 2,048) -> the shape."""


_PADDED_TO = 64
"""The output has a multiple of so many words: matrices of such a size are fast everywhere."""


class Gpt(Frozen):
    """A decoder-only transformer: rotary positions, RMS norms, tied embeddings."""

    family: Literal["gpt"]
    preset: Literal["1m", "124m", "350m", "1b"] | None = Field(default=None, exclude_if=unset)
    """A shape by name; a field that is set beside it wins."""
    width: Positive = 128
    depth: Positive = 4
    heads: Positive = 4

    @model_validator(mode="before")
    @classmethod
    def _as_the_preset_says(cls, raw: Any) -> Any:
        shape = GPT_PRESETS.get(str(raw.get("preset"))) if isinstance(raw, dict) else None
        return {**shape, **raw} if shape else raw

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.width % (2 * self.heads):
            raise ValueError(
                f"width {self.width} must be a multiple of twice the "
                f"{counted(self.heads, 'head')}: each head rotates pairs of numbers by the "
                "position"
            )
        return self


def padded(vocabulary: int) -> int:
    """The words of the output, those that no token has among them."""
    return -(-vocabulary // _PADDED_TO) * _PADDED_TO


def parameter_count(spec: Gpt, vocabulary: int) -> int:
    """The parameters of a network, the output's bias of each word included."""
    of_block = 12 * spec.width**2 + 2 * spec.width
    return padded(vocabulary) * (spec.width + 1) + spec.depth * of_block + spec.width
