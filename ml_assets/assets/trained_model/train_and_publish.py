"""Trains a pipeline's model once, and publishes the result."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from ml_assets.adapters.step import AssetStep
from ml_assets.assets.trained_model.initial_weights import DISTILL, INIT_FROM, Given, given_models
from ml_assets.assets.trained_model.live_events import EventSinks
from ml_assets.assets.trained_model.training_job import (
    adopt_model,
    begun_record,
    finished_record,
    remember_session,
    row_order,
    search_origin,
    teller,
    train_job,
)
from ml_assets.assets.training_set.shards import load_schema
from ml_assets.errors import Recalled, TrainingFailed, counted
from ml_assets.graph.code_version import trained_by
from ml_assets.graph.inputs import require_record
from ml_assets.graph.publish import Draft, Published, Work, input_version
from ml_assets.launch.launcher import Launcher, TrainJob
from ml_assets.launch.session_name import train_session
from ml_assets.records.recalls import quarantine
from ml_assets.records.record_history import keep_run_record
from ml_assets.records.run_record import RUN_FILE, RunRecord, record_bytes
from ml_assets.records.tracking.mlflow import Tracking
from ml_assets.records.tracking.outbox import Outbox
from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.spec.training import Boosted
from ml_assets.spec.training_program import Ref, TrainResult, World
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, PipelineState

WINNER = "search_winner"
"""The name of a study's winner among the inputs of a model."""


@dataclass(frozen=True)
class Training:
    """A training that is asked for, on the set that was published when the step began."""

    context: AssetStep
    pipeline: Pipeline
    asked: Pipeline
    """The same with the epochs that the run asks for."""
    commit: str
    data: StageRecord
    given: Given
    job: TrainJob
    runner: Launcher
    world: World
    """Where the first attempt runs."""

    @classmethod
    def of(
        cls,
        context: AssetStep,
        pipeline: Pipeline,
        epochs: int | None,
        fresh: str | None,
        runner: Launcher,
    ) -> Self:
        """The training that the spec asks for now.

        Args:
            epochs: instead of the spec's.
            fresh: a salt; see ``TrainingConfig``.

        Raises:
            Recalled: the study that its values come from is recalled.
        """
        asked, now = pipeline.with_epochs(epochs), pipeline.now()
        _require_sound_winner(now)
        if pipeline.set_aside:
            context.log.warning(pipeline.set_aside)
        data = require_record(now, pipeline.address("training_set"))
        given = given_models(context.log, asked.at(now.commit))
        job = train_job(asked, data, fresh, given)
        world = runner.world(job)
        return cls(context, pipeline, asked, now.commit, data, given, job, runner, world)

    def run(self) -> "Trained":
        """Train, or follow the same training by an older program to its end.

        Raises:
            TrainingFailed: it ended without a model.
        """
        members = self._members()
        whole = replace(self, job=replace(self.job, members=members)) if members else self
        return whole._older() or whole._train(whole.job)

    @property
    def row_order(self) -> str | None:
        """How the rows of an epoch are mixed, in words."""
        return row_order(self.job, load_schema(self.job.data))

    def _members(self) -> tuple[Ref, ...]:
        """The models by the other seeds of an ensemble; a session that ended is not run again."""
        training, found = self.job.training, list[Ref]()
        seeds = (training.ensemble.seeds if training.ensemble else None) or 1
        for seed in range(training.seed + 1, training.seed + seeds):
            changed = training.model_copy(update={"seed": seed, "ensemble": None})
            job = replace(self.job, training=changed)
            self.context.log.info(f"seed {seed} of an ensemble of {seeds} is trained")
            remember_session(self.context.instance, self.context.run.run_id, train_session(job))
            made = self.runner.train(job, teller(self.context.log)).model
            found.append(adopt_model(self.pipeline.objects, made))
        return tuple(found)

    def _train(self, job: TrainJob) -> "Trained":
        pipeline, run = self.pipeline, self.context.run.run_id
        outbox = Outbox(pipeline.settings.home, pipeline.objects)
        tracking = Tracking.of(pipeline.settings)
        record = begun_record(self.asked, run, job, self.data, self.commit, self.given, self.world)
        begun = keep_run_record(pipeline.store, record)
        if order := self.row_order:
            self.context.log.info(f"order of the rows: {order}")
        with EventSinks.open(self.context, pipeline, tracking, job, outbox) as sinks:
            result = self.runner.train(job, sinks.receive)
        self.context.log.info(f"trained on {counted(self.world.processes, 'process')}")
        if result.stopped == "patience":
            self.context.log.info(stopped_early(job, result))
        record = finished_record(begun, result, sinks.story.lost, sinks.story.nodes)
        return Trained(job, result, adopt_model(pipeline.objects, result.model), record, sinks)

    def _older(self) -> "Trained | None":
        """The same training by an older program, where a cluster still runs it.

        None: there is none, or it ended without a result, which the log says.
        """
        older = self.runner.under_way(self.job)
        if older is None:
            return None
        log = self.context.log
        log.warning(
            f"A Job of an older program ({older.program}) still trains this: it is followed to "
            "its end, and its model is recorded as that program's. The next run trains with the "
            "program here."
        )
        try:
            return self._train(older)
        except TrainingFailed as error:
            log.warning(f"{error}\n  It is trained with the program here instead.")
            return None


def stopped_early(job: TrainJob, result: TrainResult) -> str:
    """Where a training ended for want of progress, and which of its weights the model has."""
    unit = "round" if isinstance(job.model, Boosted) else "step"
    times = counted(job.training.patience, "evaluation")
    return (
        f"stopped early at {unit} {result.step:,}: the validation loss did not improve in the last"
        f" {times} (training.patience); the best is that of {unit} {result.best_step:,}"
    )


@dataclass(frozen=True)
class Trained:
    """A training that ended with a model."""

    job: TrainJob
    result: TrainResult
    model: Ref
    """The model at its content address."""
    record: RunRecord
    sinks: EventSinks


def publish_model(training: Training, trained: Trained) -> Iterator[tuple[str, Published]]:
    """Publish the checkpoints' record, then the model's: stage, and what was published.

    A run before may have ended between the two: what it published stays as it is.
    """
    pipeline, given = training.pipeline, training.given
    code_version = trained_by(training.asked, trained.job.program)
    saved = trained.sinks.last_checkpoint_digest or trained.model.digest
    inputs = (input_version(training.data, training.commit),)
    seen = (*(one.as_input() for one in given.values()), *winner_seen(training.asked))
    salt, run = training.job.salt, training.context.run.run_id
    for stage, version in {"checkpoints": saved, "trained_model": trained.model.digest}.items():
        address = Address(pipeline.name, stage)
        work = Work(address, code_version, inputs, run, salt, seen)
        now = pipeline.now()
        there = now.record(address) if stage == "checkpoints" else None
        if there and (there.run_key, there.data_version) == (work.run_key, version):
            yield stage, Published(there, now.commit)
            continue
        with Draft(pipeline, work, now.commit) as draft:
            draft.text(RUN_FILE, record_bytes(trained.record))
            published = draft.publish(
                attributes=_attributes(training, trained), data_version=version
            )
        yield stage, published


def _require_sound_winner(now: PipelineState) -> None:
    """Hold the study whose winner is adopted to the recalls."""
    won = now.pipeline.winner
    if won is None:
        return
    study = won.record
    found = quarantine(now.store, now.commit).of(study.key, study.partition, study.version)
    if found:
        raise Recalled(
            f"The search {won.study} read data that is recalled by {found.author}:"
            f" {found.reason} (recall {found.id}). Its winner is not adopted. Search again:"
            f" ml-assets run {now.name} --search; or set `adopt: false` in search.yaml."
        )


def winner_seen(pipeline: Pipeline) -> tuple[InputVersion, ...]:
    """The study that the values of the spec come from. No part of the key: the values are."""
    won = pipeline.winner
    return () if won is None else (won.record.model_copy(update={"key": WINNER, "commit": None}),)


def _attributes(training: Training, trained: Trained) -> dict[str, Any]:
    """What the records of the model and its checkpoints keep of the session."""
    result, won = trained.result, search_origin(training.pipeline)
    names = {INIT_FROM: "init", DISTILL: "teacher"}
    return {
        "session": result.session,
        "model": trained.model.model_dump(),
        "data": training.job.data.model_dump(),
        **{names[key]: one.ref.model_dump() for key, one in training.given.items()},
        "metrics": result.metrics,
        "best_step": result.best_step,
        "stopped": result.stopped,
        "processes": training.world.processes,
        "mlflow_run": trained.sinks.mlflow_run,
        **({"search": won.model_dump(mode="json")} if won else {}),
    }
