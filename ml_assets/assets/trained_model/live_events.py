"""Forwards a running session's events to Dagster (live checkpoints), MLflow and the run's log."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from ml_assets.adapters.declare_asset import materialization
from ml_assets.adapters.metadata import glance, numbers, pictures, place, recovery_metadata
from ml_assets.adapters.run_journal import words_of
from ml_assets.adapters.step import AssetStep
from ml_assets.assets.trained_model.pictures import (
    LIVE_POINTS,
    decoded_rows,
    losses_at_a_glance,
    pace_numbers,
    scaling,
    training_pictures,
)
from ml_assets.assets.trained_model.training_job import remember_session
from ml_assets.assets.training_set.shards import load_schema
from ml_assets.errors import counted
from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.session_name import train_session
from ml_assets.records.experiments import tracking_tags
from ml_assets.records.run_record import RunRecord, record_bytes, run_tags
from ml_assets.records.tracking.curves import LiveCurves
from ml_assets.records.tracking.links import NOTE_TAG, RUN_TAG, Links, run_note
from ml_assets.records.tracking.mlflow import Logged, Tracking, Unavailable
from ml_assets.records.tracking.outbox import Outbox, OutboxEntry, tell_whole
from ml_assets.spec.sanity import Alone
from ml_assets.spec.training import without_meaning
from ml_assets.spec.training_program import TrainResult, World
from ml_assets.spec.training_program.events import (
    Began,
    Checkpoint,
    EpochEnded,
    Event,
    Failed,
    Finished,
    FirstRows,
    FixedBatch,
    Metrics,
    Placed,
    Progress,
    Trace,
    Warning,
)
from ml_assets.spec.training_progress import TrainingStory
from ml_assets.store.pipeline_context import Pipeline


@dataclass
class EventSinks:
    """Takes every event once, in order; a dead MLflow never stops training."""

    context: AssetStep
    pipeline: Pipeline
    tracking: Tracking
    job: TrainJob
    outbox: Outbox
    mlflow_run: str | None = None
    """Known when it is closed; None where MLflow was not reachable."""
    last_checkpoint_digest: str | None = None
    best_checkpoint: str | None = None
    """Its name, of those that were told."""
    story: TrainingStory = field(default_factory=TrainingStory)
    _reachable: bool = True
    _opened: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        self._curves = LiveCurves(self.tracking, self._open_run)

    @classmethod
    @contextmanager
    def open(
        cls,
        context: AssetStep,
        pipeline: Pipeline,
        tracking: Tracking,
        job: TrainJob,
        outbox: Outbox,
    ) -> Iterator["EventSinks"]:
        """One MLflow run for the session; closed with the outcome, whatever it is."""
        remember_session(context.instance, context.run.run_id, train_session(job))
        sinks = cls(context, pipeline, tracking, job, outbox)
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
                self._say(self._curves.tell(self.story.metrics, self.story.times))
            case Progress():
                self.context.log.info(event.message)
            case Warning():
                self.context.log.warning(event.message)
            case Failed():
                # an earlier run of the session told its own failure; in this one it is history
                earlier = event.time < self._opened
                tell = self.context.log.debug if earlier else self.context.log.error
                tell(f"rank {event.rank}: {event.reason}")
            case Trace():
                self.context.log.info(
                    f"{counted(event.steps, 'step', 'are')} traced in {event.uri}"
                )
            case Finished():
                for advice in getattr(event.result, "advice", ()):
                    self.context.log.warning(advice)
            case Began():
                self.context.log.debug(f"node {event.index} runs {event.node.program}")
            case FirstRows() | EpochEnded() | FixedBatch() | Placed():
                pass

    def close(self, status: Literal["FINISHED", "FAILED"]) -> None:
        """Tell MLflow everything it missed; where it is away, note that it lacks it."""
        self._curves.close()
        self._reachable = True  # it may be back: one more try
        self._tell_whole(self._entry(status))

    def attach(self, record: RunRecord) -> None:
        """Put the run's record where people look for it."""
        links = Links.of(self.pipeline.settings)
        ways = {
            RUN_TAG: links.run(self.context.run.run_id),
            NOTE_TAG: run_note(links, self.job.pipeline, self.context.run.run_id, None),
        }
        entry = self._entry("FINISHED")
        tags = {**entry.tags, **run_tags(record), **ways}
        text = record_bytes(record).decode()
        self._tell_whole(entry.model_copy(update={"tags": tags, "record": text}))

    def _tell_whole(self, entry: OutboxEntry) -> None:
        """Once it did not answer, it is not asked again: the next run delivers what is noted."""
        entry = self.outbox.add(entry)  # first: a kill on the way loses nothing
        if not self._reachable:
            return
        told = tell_whole(self.tracking, entry, self.story)
        if isinstance(told, Unavailable):
            self._reachable = False
            self.context.log.warning(
                f"MLflow lacks events of this training; the next run delivers them: {told.reason}"
            )
            return
        self.mlflow_run = told
        self.outbox.forget(entry.session)

    def _say(self, sent: Logged | Unavailable | None) -> None:
        """A warning when MLflow goes away, not at each message."""
        if isinstance(sent, Unavailable) and self._reachable:
            self.context.log.warning(f"MLflow is not reachable; work continues: {sent.reason}")
        if sent is not None:
            self._reachable = not isinstance(sent, Unavailable)

    def pictures(self) -> dict[str, Any]:
        """Return what was told so far, as an asset page shows it."""
        label, first = self.pipeline.spec.label, self.story.first_rows
        shown = training_pictures(
            self.story, label.task, label.classes, self.job.model, LIVE_POINTS
        )
        small = glance(losses_at_a_glance(self.story))
        if first is None:
            return {**small, **pictures(shown)}
        schema = load_schema(self.job.data)
        read, scale = schema.preprocessing, schema.label_scale
        rows = decoded_rows(first, read, label.task, label.classes, scale)
        return {**small, **pictures([*shown, rows])}

    def _open_run(self) -> str | Unavailable:
        """The session's run; also the moment to deliver what waits of other sessions."""
        self.outbox.deliver(self.tracking)
        entry = self._entry("FINISHED")
        return self.tracking.open_run(entry.pipeline, entry.session, entry.tags, entry.params)

    def measurements(
        self, result: TrainResult, world: World, alone: Alone | None
    ) -> dict[str, Any]:
        """The pace of the whole training, in numbers, what it recovered from, and its trace.

        Args:
            world: of its first attempt.
            alone: one process by itself.
        """
        asked, trace = self.job.training.profile, self.story.trace
        if asked is not None and trace is None:
            self.context.log.warning(
                "There is no trace of training.profile: the training was over before it was asked"
                f" for, or has no step {asked.at}. Train again for it: ml-assets run --fresh"
            )
        there = {} if trace is None else {"trace": place(trace.uri)}
        recovered = recovery_metadata(result.attempt, self.story.lost, world)
        pace = pace_numbers(self.story.metrics)
        best = {"best_checkpoint": self.best_checkpoint} if self.best_checkpoint else {}
        worlds = {world.processes, *(lost.goes_on.processes for lost in self.story.lost)}
        gpu = any(node.machine.gpus for node in self.story.nodes)
        spread = scaling(pace, alone, self.job.training, worlds, gpu=gpu)
        said = self.story.rows_counted(self.pipeline.spec.label.task)
        rows_counted = {"rows_counted": said} if said else {}
        measured = {"seconds": result.seconds, **pace, **spread}
        return {**best, **rows_counted, **numbers(measured), **recovered, **there}

    def _entry(self, status: Literal["FINISHED", "FAILED"]) -> OutboxEntry:
        left_out = set(without_meaning(self.job.model))
        training = self.job.training.model_dump(exclude=left_out)
        params = {**self.job.model.model_dump(), **training}
        return OutboxEntry(
            pipeline=self.job.pipeline,
            session=train_session(self.job),
            status=status,
            tags={
                "dagster.run_id": self.context.run.run_id,
                "ml_assets.data": self.job.data.digest,
                **tracking_tags(words_of(self.context.run, self.pipeline.name)),
            },
            params={name: str(value) for name, value in params.items()},
        )

    def _checkpoint(self, event: Checkpoint) -> None:
        self.last_checkpoint_digest = event.checkpoint.digest
        if event.best:
            self.best_checkpoint = event.checkpoint.uri.rpartition("/")[2]
            self.context.log.info(f"The best checkpoint so far is {self.best_checkpoint}")
        self.context.log_event(
            materialization(
                self.pipeline,
                "checkpoints",
                event.checkpoint.digest,
                {
                    "step": event.step,
                    "dagster/uri": event.checkpoint.uri,
                    "bytes": event.size,
                    "best": event.best,
                    "session": event.session,
                    "attempt": event.attempt,
                    **numbers(event.metrics),
                    **self.pictures(),
                },
            )
        )
