"""The spec of a rollout: how a model in canary meets traffic: whose requests it answers, and when
it is taken out at once."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from ml_assets.spec.base import Frozen, Misfit, Positive

LOOKED_AT = 1000
"""The newest answers of a model that are compared."""


class AbortSpec(Frozen):
    """Says when a model in canary is taken out at once; none of it needs a label.

    Each is held to what chance explains: few answers prove little.
    """

    rows: Annotated[int, Field(ge=1, le=LOOKED_AT)] = 50
    """The rows that the canary must have answered before it is judged."""
    errors: Annotated[float, Field(ge=0, lt=1)] = 0.02
    """The share of its rows that it could not answer, which the champion then answered."""
    slower: Annotated[float, Field(ge=1)] = 3.0
    """More than a twentieth of its answers take this many times the champion's 95th percentile."""
    shift: Annotated[float, Field(gt=0, le=1)] = 0.2
    """The share of predictions below some value differs from the champion's by this much."""


class RolloutSpec(Frozen):
    """The traffic of a model in canary. `ml-assets serve` shares it out and logs predictions."""

    entity: tuple[str, ...] = Field(strict=False, min_length=1)
    """Columns of the key, or features, whose values' hash chooses who answers a row: the same
    entity is answered by the same model."""
    share: Annotated[float, Field(gt=0, le=0.5)] = 0.05
    """The share of entities that the canary answers."""
    steps: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = Field(
        default=(0.25, 0.5), strict=False
    )
    """Where a platform rolls the release out (`ml-assets release render`): its shares of the
    traffic after `share`, then all of it. Smaller ones than `share` are left out."""
    minutes: Positive = 10
    """The minutes of each step."""
    abort: AbortSpec = AbortSpec()


def rollout_problems(spec: RolloutSpec | None, known: Sequence[str]) -> Iterator[Misfit]:
    """Yield what does not go with the features of the pipeline.

    Args:
        known: the columns of the features' key, and the features.
    """
    if spec is None:
        return
    if sorted({*spec.steps}) != [*spec.steps]:
        said = (
            f"release.rollout.steps {[*spec.steps]} do not rise: make each larger than the "
            "one before"
        )
        yield Misfit(("release", "rollout", "steps"), said)
    unknown = [name for name in spec.entity if name not in known]
    if unknown:
        said = f"release.rollout.entity {unknown} are neither in features.key nor features"
        yield Misfit(("release", "rollout", "entity"), said)
