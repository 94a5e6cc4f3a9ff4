"""The checks of a network before it is trained: which there are, and how one ended."""

from typing import Literal

from ml_assets.spec.base import Frozen
from ml_assets.spec.training import Boosted, ModelSpec, Module, Task

SanityName = Literal[
    "loss_at_init",
    "output_bias",
    "no_batch_leak",
    "gradients",
    "overfits_one_batch",
    "beats_zero_inputs",
]
SANITY_CHECKS: dict[SanityName, str] = {
    "loss_at_init": "The first loss is the one that theory gives a network that knows nothing.",
    "output_bias": "The network begins at the base rate of its labels.",
    "no_batch_leak": "No row's output depends on another row of the batch.",
    "gradients": "Every parameter gets a finite gradient that is not zero.",
    "overfits_one_batch": "The network can learn a few rows by heart.",
    "beats_zero_inputs": "It learns more from its inputs than its twin does from zeros.",
}
"""What is asked of a network before it is trained, in this order."""


def sanity_checks(model: ModelSpec, task: Task) -> tuple[SanityName, ...]:
    """The checks that mean something.

    Boosted trees have none: they begin at the base rate and treat each row for itself by
    construction, have no gradients, and show after one round whether they learn. A ranking has no
    base rate: an output bias moves all scores of a query alike. Of a team's own loss no theory says
    where it begins.
    """
    if isinstance(model, Boosted):
        return ()
    without = {"output_bias"} if task == "ranking" else set[str]()
    if isinstance(model, Module) and model.loss:
        without.add("loss_at_init")
    return tuple(name for name in SANITY_CHECKS if name not in without)


class SanityCheck(Frozen):
    """How one check ended. What is close to its bound by chance warns, and blocks nothing."""

    name: SanityName
    outcome: Literal["passed", "warned", "failed"]
    value: float | None
    """None: not a number."""
    bound: float
    reason: str
    """What was expected, what was seen and, unless it passed, what to do."""
