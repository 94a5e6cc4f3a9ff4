"""The launcher's port: its requests and results."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ml_assets.spec.cluster import ClusterSpec
from ml_assets.spec.network_code import NetworkCode
from ml_assets.spec.training import ModelSpec, TrainingSpec
from ml_assets.spec.training_program import (
    Ref,
    SanityResult,
    ScoreResult,
    Split,
    TrainResult,
    World,
)
from ml_assets.spec.training_program.events import Event
from ml_assets.spec.training_program.identity import Program

OnEvent = Callable[[Event], None]
ShouldStop = Callable[[], bool]
ONE_NODE = ClusterSpec()


def never() -> bool:
    """Asked whether to stop: no."""
    return False


@dataclass(frozen=True)
class TrainJob:
    """A training to run once, however often it is asked for."""

    pipeline: str
    model: ModelSpec
    training: TrainingSpec
    data: Ref
    salt: str | None = None
    """Asks for a session of its own: a fresh training."""
    init: Ref | None = None
    """Weights to begin with; None: fresh ones."""
    teacher: Ref | None = None
    """The model that ``training.distill`` learns from; None: there is none yet."""
    members: tuple[Ref, ...] = ()
    """Models by other seeds, which become an ensemble with this one."""
    steps: int | None = None
    """Most steps: a drill takes a few; None: as many as the spec says."""
    cluster: ClusterSpec = ONE_NODE
    """Where it runs if that is a cluster; decides no number, and is not in the session's name."""
    program: Program | None = None
    """An older one, whose Job still runs; None: the one that is here now."""
    code: NetworkCode | None = None
    """The code of a team's own network."""
    evidence: bool = False
    """Its model is compared and judged by no gate: only a training that our launcher saw from its
    first step to its end counts. It is a session of its own."""


@dataclass(frozen=True)
class ScoreJob:
    """A split to score with a model."""

    pipeline: str
    model: Ref
    data: Ref
    split: Split
    threads: int = 1
    cluster: ClusterSpec = ONE_NODE
    code: NetworkCode | None = None
    """The code of a team's own network: the model's digest names it."""
    spot: bool = False
    """Where the training may run on machines that are taken away, so does this: a queue that knows
    them lets nothing else in."""


@dataclass(frozen=True)
class MeasureJob:
    """A few steps of a training to time."""

    pipeline: str
    model: ModelSpec
    training: TrainingSpec
    data: Ref
    steps: int
    cluster: ClusterSpec = ONE_NODE
    code: NetworkCode | None = None


@dataclass(frozen=True)
class SanityJob:
    """A training to examine before it runs: the network and the rows that it would begin with."""

    pipeline: str
    model: ModelSpec
    training: TrainingSpec
    data: Ref
    cluster: ClusterSpec = ONE_NODE
    code: NetworkCode | None = None
    deep: bool = False
    """Run the conformance checks of every network instead, in two processes."""


Job = TrainJob | ScoreJob | MeasureJob | SanityJob


class Launcher(Protocol):
    """Creates or adopts: finished -> its result, running -> followed, interrupted -> resumed."""

    def under_way(self, job: TrainJob) -> TrainJob | None:
        """The same training by an older program that a cluster still runs; None: there is none.

        It is followed like any other, and no attempt follows the one that runs.
        """
        ...

    def world(self, job: TrainJob) -> World:
        """The processes of a training's first attempt."""
        ...

    def train(
        self, job: TrainJob, on_event: OnEvent, should_stop: ShouldStop = never
    ) -> TrainResult:
        """Run a training session to its end; each event is passed on once, in order.

        The events of earlier attempts come first, also where the session was already finished.

        Args:
            should_stop: asked all the time; True: save, stop, and raise TrainingInterrupted.

        Raises:
            TrainingFailed: it ended without a result; the message gives the program's reason.
            TrainingInterrupted: it saved and stopped after a notice.
        """
        ...

    def score(
        self, job: ScoreJob, on_event: OnEvent, should_stop: ShouldStop = never
    ) -> ScoreResult:
        """Score a split; predictions are in the order of its rows.

        Raises:
            TrainingFailed: it ended without a result.
            TrainingInterrupted: it was told to stop.
        """
        ...

    def sanity(
        self, job: SanityJob, on_event: OnEvent, should_stop: ShouldStop = never
    ) -> SanityResult:
        """Examine a training before it runs; a check that fails is a result.

        Raises:
            TrainingFailed: it ended without a result.
            TrainingInterrupted: it was told to stop.
        """
        ...

    def known_sanity(self, job: SanityJob) -> SanityResult | None:
        """Return how those sanity checks ended, if they ever did; nothing is started."""
        ...
