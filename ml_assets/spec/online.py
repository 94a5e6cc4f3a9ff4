"""The online store of a pipeline: by what its features are looked up."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from ml_assets.spec.base import Frozen, Misfit


class OnlineSpec(Frozen):
    """The newest feature row of each entity is served for look-ups, after every publication."""

    entity: tuple[str, ...] = Field(strict=False, min_length=1)
    """Columns of the feature set's key, or categorical features, that name an entity."""
    features: tuple[str, ...] = Field(default=(), strict=False)
    """Those to serve; empty: all."""
    look_back: Annotated[int, Field(ge=0)] = 0
    """Earlier partitions in which the newest row of an entity may be; older ones are not served."""


def online_problems(
    spec: OnlineSpec | None,
    key: Sequence[str],
    numeric: Sequence[str],
    categorical: Sequence[str],
    *,
    partitioned: bool,
) -> list[Misfit]:
    """What does not go with the features and the partitions of the pipeline."""
    if spec is None:
        return []
    problems: list[Misfit] = []
    unknown = [name for name in spec.entity if name not in (*key, *categorical)]
    if unknown:
        said = f"online.entity {unknown} are neither in features.key nor categorical features"
        problems.append(Misfit(("online", "entity"), said))
    unknown = [name for name in spec.features if name not in (*numeric, *categorical)]
    if unknown:
        said = f"online.features {unknown} are no features"
        problems.append(Misfit(("online", "features"), said))
    if spec.look_back and not partitioned:
        problems.append(Misfit(("online", "look_back"), "online.look_back needs partitions"))
    return problems
