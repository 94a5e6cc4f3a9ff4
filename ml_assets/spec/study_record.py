"""The result of a study: every trial with its evidence, the winner, and the lessons."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ml_assets.spec.base import Digest, Frozen, digest_of
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import Time
from ml_assets.spec.search_parameter import Value
from ml_assets.spec.split import WindowSplit, is_by_time
from ml_assets.spec.training import HIGHEST_IS_BEST

STUDY_FILE = "study.json"
TrialEnd = Literal["finished", "pruned", "failed", "stopped"]
"""``pruned``: it had no prospect. ``failed``: it ended without a result. ``stopped``: the budget
was spent."""
Count = Annotated[int, Field(ge=0)]


def _is_none(value: object) -> bool:
    return value is None  # 0 is a round, and a number


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
    """What the study lowers, of the weights that it came to; of one that did not finish the best so
    far. None: it was never judged."""
    curve: tuple[tuple[float, float], ...] = Field(strict=False)
    """(share of the training, what the study lowers) at each evaluation."""
    machine_hours: Annotated[float, Field(ge=0)]
    gpu_hours: Annotated[float, Field(ge=0)]
    attempts: Count
    reason: str = ""
    """Why it failed."""
    round: Count | None = Field(default=None, exclude_if=_is_none)
    """Which part of the training, from 0, in a population. None: it was trained whole."""
    parent: Count | None = Field(default=None, exclude_if=_is_none)
    """The number of the trial whose weights it began with, in a population."""


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
    """The number of the best trial; None: the spec's own setting is the best, or the budget was
    spent before it was trained to its end."""
    seeds: tuple[float, ...] = Field(strict=False)
    """Losses of the best setting by seeds of its own, that of its trial first; of a population
    those of the spec's own setting."""
    importances: dict[str, float]
    """Path -> its share of what the loss varies by."""
    ended: str
    """Why no other trial follows, in words."""
    time: Time

    @property
    def judged_by(self) -> str:
        """The name of the loss that its trials are judged by."""
        return judged_by(str(self.search.get("metric", "validation_loss")))

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
    def schedule(self) -> tuple[Trial, ...]:
        """The trials of a population whose weights led to the best, the first round first; else the
        best alone."""
        found, by_number = [self.best], {one.number: one for one in self.trials}
        while (before := found[0].parent) is not None:
            found.insert(0, by_number[before])
        return tuple(found)

    @property
    def own(self) -> Trial:
        """The spec's own setting."""
        return next(one for one in self.trials if one.own)

    @property
    def machine_hours(self) -> float:
        """The machine hours of all trials, without the trainings by other seeds."""
        return sum(one.machine_hours for one in self.trials)


def parted_by(spec: PipelineSpec) -> str:
    """Digest of all in a spec that decides in which split a row is.

    Under another one, rows that chose the winner of a study may be in the holdout. A drawn split is
    another one by another ``training.seed``.
    """
    calendar, split = spec.partitions, spec.split
    told = split.model_dump(mode="json")
    if isinstance(split, WindowSplit):
        del told["train"]  # a window is cut from its end
    if is_by_time(split):
        places = (calendar.cadence, calendar.timezone, calendar.day_offset)
        decides: list[object] = [spec.features.decision_at, *places]
    else:
        decides = [spec.training.seed, list(spec.features.key), spec.label.query]
    return digest_of([told, *decides])


def lost(metric: str, told: Mapping[str, float]) -> float | None:
    """Return what a trial is to lower: the metric, or what it lacks to 1; None: it was not told.

    Args:
        told: the metrics of one evaluation.
    """
    value = told.get(metric)
    return 1 - value if value is not None and metric in HIGHEST_IS_BEST else value


def value_of(metric: str, loss: float) -> float:
    """The metric itself, of what was lowered."""
    return 1 - loss if metric in HIGHEST_IS_BEST else loss


def judged_by(metric: str) -> str:
    """Return what is lowered, in words."""
    plain = metric.replace("_", " ")
    return f"1 - {plain}" if metric in HIGHEST_IS_BEST else plain
