"""The events that the training program reports while it runs.

Events are JSON objects, numbered within an attempt. Beside them each rank leaves a heartbeat.
"""

from operator import add
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AwareDatetime, Field, ValidationError

from ml_assets.spec.base import Frozen, Positive, unset
from ml_assets.spec.training_program import Ref, Result, World
from ml_assets.spec.training_program.identity import Node, NodePlace


class _Event(Frozen):
    v: Literal[1] = 1
    session: str
    attempt: Positive
    seq: Annotated[int, Field(ge=0)]
    time: Annotated[AwareDatetime, Field(strict=False)]


class Began(_Event):
    """The first event of each node of an attempt: which program it runs, and on what."""

    kind: Literal["began"] = "began"
    index: Annotated[int, Field(ge=0)]
    """The node's index: on a cluster that of its pod."""
    node: Node


class Placed(_Event):
    """The launcher's: where a cluster put the nodes of the attempt, and from which image."""

    kind: Literal["placed"] = "placed"
    places: tuple[NodePlace, ...] = Field(strict=False)
    """The places, in the order of their index."""


class Progress(_Event):
    kind: Literal["progress"] = "progress"
    step: int
    steps: int
    message: str


class Metrics(_Event):
    kind: Literal["metrics"] = "metrics"
    step: int
    metrics: dict[str, float]
    """train_loss, learning_rate, grad_norm, epoch; at evaluations ``validation_metrics`` of the
    spec; and what the training measured of itself: see ``training.telemetry`` and
    docs/operate.md."""


class FirstRows(_Event):
    """A few rows of the first batch just as they enter the network: encoded, dropout aside."""

    kind: Literal["first_rows"] = "first_rows"
    numeric: tuple[tuple[float, ...], ...] = Field(strict=False)
    """[rows, n]: the numeric columns, then their null flags, as ``Preprocessing`` orders them."""
    categorical: tuple[tuple[int, ...], ...] = Field(strict=False)
    """[rows, c]: codes."""
    labels: tuple[float, ...] = Field(strict=False)
    """[rows]: 0 or 1, or the place of the class."""


class DrawnRows(Frozen):
    """The rows that some steps drew, by three sums: one drawn twice, or left out, changes them.

    Drawn once each, n rows have the sum n(n-1)/2 of their numbers, and (n-1)n(2n-1)/6 of the
    squares.
    """

    MODULUS: ClassVar[int] = 1 << 40
    """Both sums are told modulo this: those of thousands of processes add up in a float64."""

    rows: int = 0
    numbers: int = 0
    """The sum of their numbers, which begin at 0."""
    squares: int = 0

    @classmethod
    def all_of(cls, rows: int) -> "DrawnRows":
        """So many rows, each once."""
        pairs = rows * (rows - 1)
        squares = pairs * (2 * rows - 1) // 6
        return cls.of(rows, pairs // 2, squares)

    @classmethod
    def of(cls, rows: int, numbers: int, squares: int) -> "DrawnRows":
        """Sums of any size."""
        return cls(rows=rows, numbers=numbers % cls.MODULUS, squares=squares % cls.MODULUS)

    @property
    def sums(self) -> tuple[int, int, int]:
        return self.rows, self.numbers, self.squares

    def plus(self, other: "DrawnRows") -> "DrawnRows":
        """Both together."""
        return self.of(*map(add, self.sums, other.sums))


class EpochEnded(_Event):
    """The steps of an epoch are over, and drew what they were to draw.

    All processes counted it as they took their rows, before and after every resume.
    """

    kind: Literal["epoch"] = "epoch"
    epoch: Positive
    """1: the first."""
    drawn: DrawnRows


class FixedBatch(_Event):
    """The network's predictions, at one evaluation, for the same few validation rows as always."""

    kind: Literal["fixed_batch"] = "fixed_batch"
    step: int
    labels: tuple[float, ...] = Field(strict=False)
    """[rows]: 0 or 1, or the place of the class."""
    predictions: tuple[tuple[float, ...], ...] = Field(strict=False)
    """[rows, outputs]: probabilities."""


class Checkpoint(_Event):
    kind: Literal["checkpoint"] = "checkpoint"
    step: int
    checkpoint: Ref
    size: int
    best: bool
    metrics: dict[str, float]


class Trace(_Event):
    """A few steps of rank 0, operator by operator: open it in Perfetto or chrome://tracing."""

    kind: Literal["trace"] = "trace"
    step: int
    """The first of them."""
    steps: int
    uri: str
    """A gzipped file of Chrome's trace format."""


EndKind = Literal["error", "infrastructure", "start"]
"""The program's own error, what was taken away from it, what kept it from beginning."""


class Lost(Frozen):
    """An attempt that ended without a result, why, and what goes on instead."""

    attempt: Positive | None = Field(default=None, exclude_if=unset)
    """The attempt that was lost."""
    cause: str
    """The kind of end in one word, such as ``SIGKILL`` or ``Evicted``."""
    kind: EndKind | None = Field(default=None, exclude_if=unset)
    what: str = Field(default="", exclude_if=unset)
    """The words that end a sentence on what happened."""
    exit_code: int | None = Field(default=None, exclude_if=unset)
    """The program's; negative: a signal. None: it gave none."""
    pod: str | None = Field(default=None, exclude_if=unset)
    """On which it began."""
    node: str | None = Field(default=None, exclude_if=unset)
    world: World
    """The world that it ran on."""
    goes_on: World
    """The world that the next attempt runs on."""
    avoid: tuple[str, ...] = Field(default=(), strict=False, exclude_if=unset)
    """Nodes that the next attempt stays away from."""


class Warning(_Event):
    kind: Literal["warning"] = "warning"
    message: str
    lost: Lost | None = Field(default=None, exclude_if=unset)
    """The launcher's: the attempt ended, and another one follows."""


class Finished(_Event):
    kind: Literal["result"] = "result"
    result: Result


class Failed(_Event):
    kind: Literal["error"] = "error"
    exit_code: int
    reason: str
    """A sentence for an operator."""
    rank: int
    generation: int = Field(default=0, exclude_if=unset)
    """The number of times that torchrun had started the attempt's processes again."""
    step: int | None
    detail: str
    """The traceback, or empty."""


Event = Annotated[
    Began
    | Placed
    | Progress
    | Metrics
    | FirstRows
    | EpochEnded
    | FixedBatch
    | Checkpoint
    | Trace
    | Warning
    | Finished
    | Failed,
    Field(discriminator="kind"),
]


class Heartbeat(Frozen):
    """The sign of life that a rank leaves beside the events, at most once a second."""

    attempt: Positive
    generation: Annotated[int, Field(ge=0)]
    """The number of times that torchrun had started the attempt's processes again."""
    rank: Annotated[int, Field(ge=0)]
    pid: Positive
    host: str
    step: Annotated[int, Field(ge=0)]
    time: Annotated[AwareDatetime, Field(strict=False)]
    patience: float
    """Seconds that this rank now waits for another one in a step."""


def heartbeat_file(folder: Path, rank: int) -> Path:
    """The file of a rank's heartbeat, from the folder of the attempt's events."""
    return folder / f"heartbeat.{rank}.json"


def read_heartbeat(file: Path) -> Heartbeat | None:
    """The heartbeat in a file; None where there is none that can be read."""
    try:
        return Heartbeat.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None
