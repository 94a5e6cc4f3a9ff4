"""Where a running session's events go: Dagster (live checkpoints), MLflow, and the run's log."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from ml_assets.assets.graph import PipelineGraph
from ml_assets.assets.metadata import pictures
from ml_assets.assets.sessions import remember_session
from ml_assets.dataset.shards import load_schema
from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.session import train_session
from ml_assets.pictures.training import (
    LIVE_POINTS,
    TrainingStory,
    decoded_rows,
    training_pictures,
)
from ml_assets.registry.links import NOTE_TAG, RUN_TAG, Links, run_note
from ml_assets.registry.mlflow import Tracking, Unavailable
from ml_assets.registry.run_record import RunRecord, record_bytes, run_tags
from ml_assets.spec.program import (
    Checkpoint,
    Event,
    Failed,
    Finished,
    FirstRows,
    FixedBatch,
    Metrics,
    Progress,
    Warning,
)
from ml_assets.spec.training import without_meaning

_FLUSH_EVERY = 5
"""Steps with metrics between two messages to MLflow."""


@dataclass
class EventSinks:
    """Takes every event once, in order; a dead MLflow never stops training."""

    context: dg.AssetExecutionContext
    graph: PipelineGraph
    tracking: Tracking
    job: TrainJob
    mlflow_run: str | None = None
    last_checkpoint_digest: str | None = None
    story: TrainingStory = field(default_factory=TrainingStory)
    _told: int = 0
    _opened: datetime = field(default_factory=lambda: datetime.now(UTC))

    @classmethod
    @contextmanager
    def open(
        cls,
        context: dg.AssetExecutionContext,
        graph: PipelineGraph,
        tracking: Tracking,
        job: TrainJob,
    ) -> Iterator["EventSinks"]:
        """One MLflow run for the session; closed with the outcome, whatever it is."""
        remember_session(context.instance, context.run_id, train_session(job))
        sinks = cls(context, graph, tracking, job)
        sinks.mlflow_run = sinks._open_run()
        try:
            yield sinks
        except BaseException:
            sinks.close("FAILED")
            raise
        sinks.close("FINISHED")

    def receive(self, event: Event) -> None:
        """Pass one event on."""
        self.story.take(event)
        match event:
            case Checkpoint():
                self._checkpoint(event)
            case Metrics():
                self._flush()
            case Progress():
                self.context.log.info(event.message)
            case Warning():
                self.context.log.warning(event.message)
            case Failed():
                # an earlier run of the session told its own failure; in this one it is history
                earlier = event.time < self._opened
                tell = self.context.log.debug if earlier else self.context.log.error
                tell(f"rank {event.rank}: {event.reason}")
            case Finished():
                for advice in getattr(event.result, "advice", ()):
                    self.context.log.warning(advice)
            case FirstRows() | FixedBatch():
                pass

    def close(self, status: str) -> None:
        """Tell MLflow everything it missed; what it has already is not told twice."""
        self.mlflow_run = self.mlflow_run or self._open_run()
        if self.mlflow_run is None:
            return
        logged = self.tracking.log_metrics(self.mlflow_run, self.story.metrics, now=True)
        if isinstance(logged, Unavailable):
            self.context.log.warning(f"MLflow lacks the curves: {logged.reason}")
        self.tracking.close(self.mlflow_run, status)

    def attach(self, record: RunRecord) -> None:
        """Put the run's record where people look for it."""
        if self.mlflow_run is None:
            return
        links = Links.of()
        ways = {
            RUN_TAG: links.run(self.context.run_id),
            NOTE_TAG: run_note(links, self.job.pipeline, self.context.run_id, None),
        }
        self.tracking.set_tags(self.mlflow_run, {**run_tags(record), **ways})
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "run.json"
            file.write_bytes(record_bytes(record))
            self.tracking.log_artifact(self.mlflow_run, file)

    def pictures(self) -> dict[str, Any]:
        """What was told so far, as an asset page shows it."""
        label, first = self.graph.spec.label, self.story.first_rows
        shown = training_pictures(self.story, label.task, label.classes, LIVE_POINTS)
        if first is None:
            return pictures(shown)
        preprocessing = load_schema(self.job.data).preprocessing
        return pictures([*shown, decoded_rows(first, preprocessing, label.classes)])

    def _open_run(self) -> str | None:
        left_out = set(without_meaning(self.job.model))
        training = self.job.training.model_dump(exclude=left_out)
        params = {**self.job.model.model_dump(), **training}
        opened = self.tracking.open_run(
            self.job.pipeline,
            train_session(self.job),
            tags={"dagster.run_id": self.context.run_id, "ml_assets.data": self.job.data.digest},
            params={name: str(value) for name, value in params.items()},
        )
        if isinstance(opened, Unavailable):
            self.context.log.warning(f"MLflow is not reachable, work goes on: {opened.reason}")
            return None
        return opened

    def _checkpoint(self, event: Checkpoint) -> None:
        self.last_checkpoint_digest = event.checkpoint.digest
        self.context.log_event(
            dg.AssetMaterialization(
                self.graph.key("checkpoints"),
                metadata={
                    "step": event.step,
                    "dagster/uri": event.checkpoint.uri,
                    "bytes": event.size,
                    "best": event.best,
                    "session": event.session,
                    "attempt": event.attempt,
                    **event.metrics,
                    **self.pictures(),
                },
                tags={"dagster/data_version": event.checkpoint.digest},
            )
        )

    def _flush(self) -> None:
        """Now and then, so that the curves grow while training runs."""
        if len(self.story.metrics) - self._told < _FLUSH_EVERY or not self.mlflow_run:
            return
        logged = self.tracking.log_metrics(self.mlflow_run, self.story.metrics)
        if not isinstance(logged, Unavailable):
            self._told = len(self.story.metrics)
