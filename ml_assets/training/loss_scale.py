"""The scale of fp16 losses: a pure function of which steps overflowed, saved with the checkpoint.

Small gradients vanish in fp16 and large ones overflow. The loss is multiplied by a scale that is
halved when a gradient overflows, and doubled after many steps without (Micikevicius et al., "Mixed
Precision Training", 2018).
"""

from ml_assets.spec.base import Frozen

MOST_SKIPS = 24
"""Steps in a row without an update before training stops: the scale is then 2**-8."""
_GROW_AFTER = 2000
"""Steps without an overflow before the scale is tried at twice the size."""
_LARGEST = 2.0**24


class LossScale(Frozen):
    """Where the scale stands after some steps."""

    scale: float = 2.0**16
    steps_since_change: int = 0
    skipped: int = 0
    """Steps of the whole training that updated nothing."""
    skipped_in_a_row: int = 0

    def after(self, *, overflowed: bool) -> "LossScale":
        """The scale for the next step."""
        if overflowed:
            return LossScale(
                scale=self.scale / 2,
                skipped=self.skipped + 1,
                skipped_in_a_row=self.skipped_in_a_row + 1,
            )
        grown = self.steps_since_change + 1 >= _GROW_AFTER
        return LossScale(
            scale=min(self.scale * 2, _LARGEST) if grown else self.scale,
            steps_since_change=0 if grown else self.steps_since_change + 1,
            skipped=self.skipped,
        )

    def metrics(self) -> dict[str, float]:
        """As the curves have it."""
        return {"loss_scale": self.scale, "skipped_steps": float(self.skipped)}
