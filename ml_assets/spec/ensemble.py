"""Several weights as one model, and what a network begins with or learns from."""

import re
from typing import Annotated, NamedTuple, Self

from pydantic import AliasChoices, Field, StringConstraints, model_validator

from ml_assets.spec.base import Frozen, unset

RELEASE = "release"
"""``init_from`` and ``distill``: the model that is released when training is asked for."""
_FILE = re.compile(r"(.+\.safetensors)@sha256:([0-9a-fA-F]{64})")


class WeightsFile(NamedTuple):
    """A file of weights that were made elsewhere.

    No gate can tell whether they saw the holdout. Whoever writes their digest into the spec vouches
    that they did not.
    """

    path: str
    sha256: str


def weights_file(init_from: str | None) -> WeightsFile | None:
    """The file that ``init_from`` names; None: it names none."""
    found = _FILE.fullmatch(init_from or "")
    return WeightsFile(found[1], found[2].lower()) if found else None


class Ensemble(Frozen):
    """Several weights as one model: their predictions are averaged, and judged as one."""

    checkpoints: Annotated[int, Field(ge=2, le=20)] | None = Field(default=None, exclude_if=unset)
    """The number of best checkpoints of one training; ``keep_best`` has to keep as many."""
    seeds: Annotated[int, Field(ge=2, le=20)] | None = Field(default=None, exclude_if=unset)
    """The number of trainings whose best weights are used, by ``seed`` and the seeds after it."""

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if (self.checkpoints is None) == (self.seeds is None):
            raise ValueError("ensemble takes either checkpoints or seeds: write one of the two")
        return self


class Distill(Frozen):
    """A released model as teacher: a network learns from its predictions and from the labels.

    Hinton et al., "Distilling the Knowledge in a Neural Network" (2015).
    """

    teacher: Annotated[str, StringConstraints(pattern=r"^(release|[0-9a-f]{6,64})$")] = Field(
        validation_alias=AliasChoices("from")
    )
    """``release``: the model that is released when training is asked for; or the first characters
    of a version that was. Without a release the first training has no teacher."""
    weight: Annotated[float, Field(gt=0)] = 0.5
    """The weight of the teacher; the labels have weight 1."""
    temperature: Annotated[float, Field(gt=0, le=100)] = 2.0
    """What the logits of both are divided by before they are compared (classes); the loss is
    multiplied by its square."""
