"""How a model in canary meets traffic: whose requests it answers, and when it is out at once."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from ml_assets.spec.base import Frozen, Misfit, Positive


class AbortSpec(Frozen):
    """When a model in canary is out at once; none of it needs a label.

    Each is held to what chance explains: few answers prove little.
    """

    rows: Positive = 50
    """Rows that the canary has answered before anything is judged."""
    errors: Annotated[float, Field(ge=0, lt=1)] = 0.02
    """Share of its rows that it could not answer, for which the champion answered."""
    slower: Annotated[float, Field(ge=1)] = 3.0
    """More than a twentieth of its answers take so many times the champion's 95th percentile."""
    shift: Annotated[float, Field(gt=0, le=1)] = 0.2
    """The share of predictions below some value differs from the champion's by so much."""


class RolloutSpec(Frozen):
    """The traffic of a model in canary. `ml-assets serve` shares it out and logs predictions."""

    entity: tuple[str, ...] = Field(strict=False, min_length=1)
    """Columns of the key, or features, whose values' hash chooses who answers a row: the same
    entity is answered by the same model."""
    share: Annotated[float, Field(gt=0, le=0.5)] = 0.05
    """Of the entities, those that the canary answers."""
    abort: AbortSpec = AbortSpec()


def rollout_problems(spec: RolloutSpec | None, known: Sequence[str]) -> list[Misfit]:
    """What does not go with the features of the pipeline.

    Args:
        known: the columns of the features' key, and the features.
    """
    unknown = [name for name in spec.entity if name not in known] if spec else []
    said = f"release.rollout.entity {unknown} are neither in features.key nor features"
    return [Misfit(("release", "rollout", "entity"), said)] if unknown else []
