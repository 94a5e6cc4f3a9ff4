"""The story of a session so far, from its events: curves, first rows, losses of processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ml_assets.errors import counted
from ml_assets.spec.training import Task
from ml_assets.spec.training_program.events import (
    Began,
    Checkpoint,
    DrawnRows,
    EpochEnded,
    Event,
    FirstRows,
    FixedBatch,
    Lost,
    Metrics,
    Placed,
    Trace,
    Warning,
)
from ml_assets.spec.training_program.identity import Node, NodePlace

_DRAWN: dict[Task, str] = {"ranking": "query", "language_model": "window"}
"""What a step draws of each task: a row of the others."""


@dataclass
class TrainingStory:
    """Holds what a session's events told; of a step told twice, the last attempt's word."""

    metrics: dict[int, dict[str, float]] = field(default_factory=dict)
    times: dict[int, datetime] = field(default_factory=dict)
    """Step -> when it was first told of: the same at every replay."""
    batches: dict[int, FixedBatch] = field(default_factory=dict)
    first_rows: FirstRows | None = None
    epochs: dict[int, DrawnRows] = field(default_factory=dict)
    """Each epoch that ended -> what its steps drew."""
    trace: Trace | None = None
    lost: list[Lost] = field(default_factory=list)
    """Attempts that ended without a result, oldest first."""
    began: dict[int, Node] = field(default_factory=dict)
    """Index of each node -> what it runs and on what, in the last attempt."""
    places: tuple[NodePlace, ...] = ()
    """Where a cluster put the nodes of the last attempt."""
    _attempt: int = 0

    def take(self, event: Event) -> None:
        """Add one event, in the order they were told."""
        if event.attempt != self._attempt:
            self._attempt, self.began, self.places = event.attempt, {}, ()
        match event:
            case Began():
                self.began[event.index] = event.node
            case Placed():
                self.places = event.places
            case Metrics():
                self._measured(event, event.metrics)
            case FixedBatch():
                self.batches[event.step] = event
            case FirstRows():
                self.first_rows = event
            case EpochEnded():
                self.epochs[event.epoch] = event.drawn
            case Checkpoint():
                took = {n: v for n, v in event.metrics.items() if n.startswith("checkpoint_")}
                self._measured(event, took)
            case Trace():
                self.trace = event
            case Warning(lost=Lost() as lost):
                self.lost.append(lost)
            case _:
                pass

    def rows_counted(self, task: Task) -> str:
        """A sentence on what whole epochs drew; empty where none ended."""
        if not self.epochs:
            return ""
        drawn = self.epochs[max(self.epochs)]
        once = drawn == DrawnRows.all_of(drawn.rows)
        each = "each once" if once else "as training.oversample asks"
        epochs = counted(len(self.epochs), "whole epoch")
        return f"{epochs} drew {counted(drawn.rows, _DRAWN.get(task, 'row'))}, {each}"

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return what the last attempt ran, and on what, in the order of its nodes."""
        where = {place.index: place for place in self.places}
        return tuple(
            node.model_copy(update={"place": where.get(index)})
            for index, node in sorted(self.began.items())
        )

    def _measured(self, event: Metrics | Checkpoint, found: Mapping[str, float]) -> None:
        self.metrics.setdefault(event.step, {}).update(found)
        self.times.setdefault(event.step, event.time)

    def curve(self, name: str) -> list[tuple[float, float]]:
        """(step, value) of one metric, in the order of the steps."""
        told = sorted(self.metrics.items())
        return [(float(step), values[name]) for step, values in told if name in values]
