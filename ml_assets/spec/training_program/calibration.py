"""The calibration that turns a model's probabilities back into frequencies."""

from typing import Annotated

from pydantic import Field

from ml_assets.spec.base import Frozen


class Calibration(Frozen):
    """Takes the probabilities p of a model back to frequencies; applied wherever it predicts.

    ``q_k ~ p_k / f(p_k)`` undoes a focal loss, then ``~ q_k^scale exp(shift_k)``, each made to sum
    to one. Of a binary label that is Platt's ``sigmoid(a logit(q) + b)``.
    """

    focal_gamma: Annotated[float, Field(ge=0)] = 0.0
    """The gamma of the focal loss it was trained with; 0: none."""
    scale: Annotated[float, Field(gt=0)] = 1.0
    shift: tuple[float, ...] = Field(strict=False)
    """[classes], the first 0; binary: of the negative and the positive."""
    rows: Annotated[int, Field(ge=0)] = 0
    """Rows of the validation split that it was fitted on."""
    log_loss_before: float | None = None
    """The log loss of those rows, without it."""
    log_loss: float | None = None
