"""What a study came to: every trial with its evidence, the winner, and what was learned."""

from typing import Annotated, Any, Literal

from pydantic import Field

from ml_assets.spec.base import Digest, Frozen
from ml_assets.spec.records import Time
from ml_assets.spec.search_parameter import Value

STUDY_FILE = "study.json"
TrialEnd = Literal["finished", "pruned", "failed", "stopped"]
"""``pruned``: it had no prospect. ``failed``: it ended without a result. ``stopped``: the budget
was spent."""
Count = Annotated[int, Field(ge=0)]


class Trial(Frozen):
    """One training of a study."""

    number: int
    """Its number in the study; of the spec's own setting outside of the space: -1."""
    values: dict[str, Value]
    """Path of each field of the space -> its value."""
    session: str
    """The name of its training session: a digest of all that decides its result."""
    own: bool
    """Whether its setting is the spec's own."""
    end: TrialEnd
    loss: float | None
    """Its best validation loss so far; None: it was never judged."""
    curve: tuple[tuple[float, float], ...] = Field(strict=False)
    """(share of the training, validation loss) at each evaluation."""
    machine_hours: Annotated[float, Field(ge=0)]
    gpu_hours: Annotated[float, Field(ge=0)]
    attempts: Count
    reason: str = ""
    """Why it failed."""


class Study(Frozen):
    """``study.json`` beside the record of ``hyperparameter_search``."""

    schema_version: Literal[1] = 1
    pipeline: str
    name: str
    """A digest of all that decides its trials: space, method, spec, data, program."""
    space: Digest
    data: Digest
    """The training set's digest."""
    search: dict[str, Any]
    """What ``search.yaml`` said."""
    trials: tuple[Trial, ...] = Field(strict=False)
    """In the order of their numbers; the spec's own setting is one of them."""
    winner: int | None
    """The number of the best trial; None: the spec's own setting is the best."""
    seeds: tuple[float, ...] = Field(strict=False)
    """Validation losses of the best setting by seeds of its own, that of its trial first."""
    importances: dict[str, float]
    """Path -> its share of what the loss varies by."""
    ended: str
    """Why no other trial follows, in words."""
    time: Time

    @property
    def finished(self) -> tuple[Trial, ...]:
        """The trials that were trained to their end, the best first."""
        done = [one for one in self.trials if one.end == "finished" and one.loss is not None]
        return tuple(sorted(done, key=lambda one: (one.loss, one.number)))

    @property
    def best(self) -> Trial:
        """The best of them."""
        return self.finished[0]

    @property
    def own(self) -> Trial:
        """The spec's own setting."""
        return next(one for one in self.trials if one.own)

    @property
    def machine_hours(self) -> float:
        """Of all trials; the trainings by other seeds are not in it."""
        return sum(one.machine_hours for one in self.trials)
