"""Where a running session's events go: Dagster (live checkpoints), MLflow, and the run's log."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import dagster as dg

from ml_assets.assets.graph import PipelineGraph
from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.session import train_session
from ml_assets.registry.mlflow import Tracking, Unavailable
from ml_assets.spec.program import Checkpoint, Event, Failed, Finished, Metrics, Progress, Warning


@dataclass
class EventSinks:
    """Takes every event once, in order; a dead MLflow never stops training."""

    context: dg.AssetExecutionContext
    checkpoint_key: dg.AssetKey
    tracking: Tracking
    mlflow_run: str | None
    last_checkpoint_digest: str | None = None
    _metrics: dict[int, dict[str, float]] = field(default_factory=dict)

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
        params = {**job.model.model_dump(), **job.training.model_dump()}
        opened = tracking.open_run(
            graph.name,
            train_session(job),
            tags={"dagster.run_id": context.run_id, "ml_assets.data": job.data.digest},
            params={name: str(value) for name, value in params.items()},
        )
        if isinstance(opened, Unavailable):
            context.log.warning(f"MLflow is not reachable, training goes on: {opened.reason}")
        run = None if isinstance(opened, Unavailable) else opened
        sinks = cls(context, graph.key("checkpoints"), tracking, run)
        try:
            yield sinks
        except BaseException:
            sinks.close("FAILED")
            raise
        sinks.close("FINISHED")

    def receive(self, event: Event) -> None:
        """Pass one event on."""
        match event:
            case Checkpoint():
                self._checkpoint(event)
            case Metrics():
                self._metrics.setdefault(event.step, {}).update(event.metrics)
                self._flush(min_steps=20)
            case Progress():
                self.context.log.info(event.message)
            case Warning():
                self.context.log.warning(event.message)
            case Failed():
                self.context.log.error(f"rank {event.rank}: {event.reason}")
            case Finished():
                self._flush()

    def close(self, status: str) -> None:
        self._flush()
        if self.mlflow_run:
            self.tracking.close(self.mlflow_run, status)

    def _checkpoint(self, event: Checkpoint) -> None:
        self.last_checkpoint_digest = event.checkpoint.digest
        self.context.log_event(
            dg.AssetMaterialization(
                self.checkpoint_key,
                metadata={
                    "step": event.step,
                    "dagster/uri": event.checkpoint.uri,
                    "bytes": event.size,
                    "best": event.best,
                    "session": event.session,
                    "attempt": event.attempt,
                    **event.metrics,
                },
                tags={"dagster/data_version": event.checkpoint.digest},
            )
        )

    def _flush(self, min_steps: int = 1) -> None:
        if len(self._metrics) < min_steps or not self.mlflow_run:
            return
        logged = self.tracking.log_metrics(self.mlflow_run, self._metrics)
        if isinstance(logged, Unavailable):
            self.context.log.warning(f"MLflow did not take metrics yet: {logged.reason}")
            return
        self._metrics = {}
