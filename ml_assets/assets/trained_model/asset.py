"""checkpoints and trained_model: one training session, followed while it runs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from ml_assets.adapters.declared import asset_key, attributes, pool
from ml_assets.adapters.launcher import LauncherResource
from ml_assets.adapters.metadata import numbers, record_metadata, tracking_link
from ml_assets.adapters.run_config import RunConfig
from ml_assets.adapters.run_journal import chronicled
from ml_assets.adapters.step_failure import reported
from ml_assets.adapters.stores import StoresResource
from ml_assets.assets.trained_model.cost.page import costs
from ml_assets.assets.trained_model.initial_weights import KEY, InitialWeights, initial_weights
from ml_assets.assets.trained_model.live_events import EventSinks
from ml_assets.assets.trained_model.sanity import require_sane
from ml_assets.errors import TrainingFailed
from ml_assets.graph.code_version import trained_by
from ml_assets.graph.inputs import require_record
from ml_assets.graph.publish import Draft, Published, Work, input_version
from ml_assets.launch.launcher import Launcher, TrainJob
from ml_assets.launch.session import program_of, train_session
from ml_assets.records.ledger.chain import register
from ml_assets.records.run_history import keep_run_record
from ml_assets.records.run_record import (
    RunRecord,
    SearchOrigin,
    environment,
    record_bytes,
    run_input,
    run_record,
)
from ml_assets.records.tracking.mlflow import Tracking
from ml_assets.records.tracking.outbox import Outbox
from ml_assets.reports.wording import plain_markdown
from ml_assets.spec.program import Ref, TrainResult, World
from ml_assets.spec.program.events import Lost
from ml_assets.spec.program.identity import Node
from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.spec.stages import SEARCH_STAGE
from ml_assets.spec.training import Boosted, ModelSpec
from ml_assets.store.layout import Address
from ml_assets.store.networks import kept_network
from ml_assets.store.objects import LocalObjects
from ml_assets.store.pipeline_context import Pipeline

STAGE = "trained_model"
WINNER = "search_winner"
"""The name of a study's winner among the inputs of a model."""


class TrainingConfig(RunConfig):
    """What this run trains other than the spec says."""

    fresh: str | None = None
    """A salt: train again from nothing, under a session of its own."""
    epochs: int | None = None
    """Instead of the spec's. It is another model: the next run by the spec trains again."""
    experiment: str | None = None
    """What the run belongs to, for people who compare runs; no result hangs on it."""
    hypothesis: str | None = None
    goal: str | None = None


def trained_model(declared: Pipeline) -> dg.AssetsDefinition:
    """The checkpoints and trained_model assets of a pipeline: one step, never half of it."""

    @dg.multi_asset(
        name=f"{declared.name}__train",
        specs=_specs(declared),
        can_subset=False,
        pool=pool(declared, STAGE),
        config_schema=TrainingConfig.form(),
    )
    @reported
    @chronicled(declared, STAGE)
    def materialize(
        context: dg.AssetExecutionContext,
        stores: StoresResource,
        launcher: LauncherResource,
    ) -> Iterator[dg.MaterializeResult]:
        config = TrainingConfig.of(context)
        pipeline = stores.open(declared, keeps_objects=True)
        asked = pipeline.with_epochs(config.epochs)
        base = pipeline.store.resolve("main")
        data = require_record(pipeline.at(base), pipeline.address("training_set"))
        init = initial_weights(context.log, asked.at(base))
        job = train_job(asked, data, config.fresh, init)
        runner = launcher.launcher(pipeline)
        world = runner.world(job)
        require_sane(context, asked, runner, data_ref(pipeline, data))
        outbox = Outbox(pipeline.settings.home, pipeline.objects.path("sessions"))

        def train(job: TrainJob) -> Trained:
            record = begun_record(asked, context.run_id, job, data, base, init, world)
            begun = keep_run_record(pipeline.store, record)
            with EventSinks.open(
                context, pipeline, Tracking.of(pipeline.settings), job, outbox
            ) as sinks:
                return Trained(job, runner.train(job, sinks.receive), begun, sinks)

        trained = _older(context, runner, job, train) or train(job)
        result, begun, sinks = trained.result, trained.begun, trained.sinks
        code_version = trained_by(asked, trained.job.program)
        model = adopt_model(pipeline.objects, result.model)
        attributes = _attributes(pipeline, result, model, data, init, sinks.mlflow_run)
        saved = sinks.last_checkpoint_digest or model.digest
        versions, inputs = {"checkpoints": saved, STAGE: model.digest}, (input_version(data, base),)
        seen = (*((init.as_input(),) if init else ()), *winner_seen(asked))
        record = finished_record(begun, result, sinks.story.lost, sinks.story.nodes)
        measured = sinks.measurements(result, world) | costs(pipeline, result.session)
        for stage, version in versions.items():
            address = Address(pipeline.name, stage)
            work = Work(address, code_version, inputs, context.run_id, config.fresh, seen)
            with Draft(pipeline, work, pipeline.store.resolve("main")) as draft:
                draft.text("run.json", record_bytes(record))
                published = draft.publish(attributes=attributes, data_version=version)
            tracked = tracking_link(pipeline, sinks.mlflow_run)
            shown = {**sinks.pictures(), **measured, **tracked, **began_with(init), **won_by(asked)}
            yield _result(pipeline, stage, published, result, model, shown)
        register(pipeline.store, pipeline.name, model.digest, pipeline.spec.owner, context.run_id)
        sinks.attach(record)

    return materialize


@dataclass(frozen=True)
class Trained:
    """A training that ended with a result."""

    job: TrainJob
    result: TrainResult
    begun: RunRecord
    sinks: EventSinks


def _older(
    context: dg.AssetExecutionContext,
    runner: Launcher,
    job: TrainJob,
    train: Callable[[TrainJob], Trained],
) -> Trained | None:
    """The same training by an older program, where a cluster still runs it: followed to its end.

    None: there is none, or it ended without a result, which the log says.
    """
    older = runner.under_way(job)
    if older is None:
        return None
    context.log.info(
        f"A Job of an older program ({older.program}) still trains this: it is followed to its end,"
        " and its model counts as that program's. The next run trains by the one that is here."
    )
    try:
        return train(older)
    except TrainingFailed as error:
        context.log.warning(f"{error}\n  It is trained by the program that is here instead.")
        return None


def _specs(pipeline: Pipeline) -> list[dg.AssetSpec]:
    return [
        dg.AssetSpec(
            **attributes(pipeline, "checkpoints"),
            description="Whole training states, reported while training runs; they survive a"
            " failed run and the next one resumes from them.",
            kinds={_engine(pipeline.spec.model)},
            deps=[asset_key(pipeline, "training_set")],
        ),
        dg.AssetSpec(
            **attributes(pipeline, STAGE),
            description=f"{_weights(pipeline.spec.model)}, its configuration and its preprocessing"
            " as data. Nothing is pickled.",
            kinds={_engine(pipeline.spec.model), "mlflow"},
            deps=[
                asset_key(pipeline, "training_set"),
                *_study(pipeline),
                asset_key(pipeline, "checkpoints"),
            ],
        ),
    ]


def _study(pipeline: Pipeline) -> list[dg.AssetKey]:
    """The study whose winner it is trained by, where the search says so."""
    adopts = pipeline.search is not None and pipeline.search.adopt
    return [asset_key(pipeline, SEARCH_STAGE)] if adopts else []


def _engine(model: ModelSpec) -> str:
    return model.family if isinstance(model, Boosted) else "torch"


def _weights(model: ModelSpec) -> str:
    if isinstance(model, Boosted):
        return f"Boosted trees by {model.family}"
    return f"A {model.family} network: safetensors"


def begun_record(
    pipeline: Pipeline,
    run: str,
    job: TrainJob,
    data: StageRecord,
    commit: str,
    init: InitialWeights | None,
    world: World,
) -> RunRecord:
    """All it takes to repeat a training that is about to begin: code, lock, spec, inputs, seed."""
    return run_record(
        environment(pipeline.settings),
        pipeline=pipeline.name,
        session=train_session(job),
        run=run,
        config=pipeline.spec,
        seed=pipeline.spec.training.seed,
        inputs=[run_input(data, commit), *([init.as_run_input()] if init else [])],
        outputs={"training_set": data.data_version},
        metrics={},
        world=world,
        salt=job.salt,
        program=program_of(job),
        search=search_origin(pipeline),
    )


def search_origin(pipeline: Pipeline) -> SearchOrigin | None:
    """The study whose winner's values the pipeline's spec has."""
    won = pipeline.winner
    if won is None:
        return None
    return SearchOrigin(study=won.study, trial=won.trial, space=won.space, values=dict(won.values))


def finished_record(
    begun: RunRecord, result: TrainResult, lost: Sequence[Lost], nodes: Sequence[Node]
) -> RunRecord:
    """The same training with what it made, and what ended the attempts before the last."""
    outputs = {**begun.outputs, "model": result.model.digest}
    made = {
        "outputs": outputs,
        "metrics": result.metrics,
        "lost": tuple(lost),
        "nodes": tuple(nodes),
        "time": datetime.now(UTC),
    }
    return begun.model_copy(update=made)


def train_job(
    pipeline: Pipeline, data: StageRecord, fresh: str | None, init: InitialWeights | None
) -> TrainJob:
    """The training that the spec asks for, on exactly this set, from exactly these weights."""
    spec, begin = pipeline.spec, init.ref if init else None
    where = data_ref(pipeline, data)
    return TrainJob(
        pipeline.name,
        spec.model,
        spec.training,
        where,
        fresh,
        begin,
        cluster=spec.cluster,
        code=kept_network(pipeline),
    )


def began_with(init: InitialWeights | None) -> dict[str, str]:
    """Metadata: the weights that a training began with, where they were not fresh."""
    return {KEY: f"{init.said} {init.ref.digest}"} if init else {}


def winner_seen(pipeline: Pipeline) -> tuple[InputVersion, ...]:
    """The study that the values of the spec come from. No part of the key: the values are."""
    won = pipeline.winner
    return () if won is None else (won.record.model_copy(update={"key": WINNER, "commit": None}),)


def won_by(pipeline: Pipeline) -> dict[str, str]:
    """Metadata: whose values it was trained by, where they are a study's."""
    won = pipeline.winner
    return {"search": f"trial {won.trial} of {won.study}"} if won else {}


def data_ref(pipeline: Pipeline, record: StageRecord) -> Ref:
    """Where a training set lies, from its record.

    Raises:
        StorageError: the record leads out of the object store.
    """
    named = Ref(uri=record.attributes["uri"], digest=record.attributes["digest"])
    return pipeline.objects.own(named, "shards", record.key.split("/")[0])


def adopt_model(objects: LocalObjects, produced: Ref) -> Ref:
    """Copy a session's model to its content address: ``models/<digest>``; safe to repeat."""
    return objects.adopt(produced, "models", "model.json")


def _attributes(
    pipeline: Pipeline,
    result: TrainResult,
    model: Ref,
    data: StageRecord,
    init: InitialWeights | None,
    mlflow_run: str | None,
) -> dict[str, Any]:
    """What the records of the model and its checkpoints keep of the session."""
    won = search_origin(pipeline)
    return {
        "session": result.session,
        "model": model.model_dump(),
        "data": data_ref(pipeline, data).model_dump(),
        **({"init": init.ref.model_dump()} if init else {}),
        "metrics": result.metrics,
        "best_step": result.best_step,
        "stopped": result.stopped,
        "mlflow_run": mlflow_run,
        **({"search": won.model_dump(mode="json")} if won else {}),
    }


def _listed(advice: Sequence[str]) -> str:
    return "\n".join(f"- {plain_markdown(one)}" for one in advice)


def _result(
    pipeline: Pipeline,
    stage: str,
    published: Published,
    result: TrainResult,
    model: Ref,
    shown: dict[str, Any],
) -> dg.MaterializeResult:
    return dg.MaterializeResult(
        asset_key=asset_key(pipeline, stage),
        metadata={
            **shown,
            **record_metadata(published),
            "dagster/uri": model.uri,
            "session": result.session,
            "stopped": f"{result.stopped} at step {result.step}",
            **({"advice": dg.MetadataValue.md(_listed(result.advice))} if result.advice else {}),
            **numbers({"best_step": result.best_step, "step": result.step, **result.metrics}),
        },
        data_version=dg.DataVersion(published.record.data_version),
    )
