"""The training that a spec asks for: its job, its data, its log, and the record of its run."""

from collections.abc import Sequence
from datetime import UTC, datetime

from ml_assets.adapters.step import Instance, RunLog
from ml_assets.assets.trained_model.initial_weights import DISTILL, INIT_FROM, Given
from ml_assets.errors import counted
from ml_assets.launch.launcher import OnEvent, TrainJob
from ml_assets.launch.session_name import SESSIONS_TAG, program_of, train_session
from ml_assets.records.run_record import (
    RunInput,
    RunRecord,
    SearchOrigin,
    environment,
    run_input,
    run_record,
)
from ml_assets.spec.records import StageRecord
from ml_assets.spec.training import without_meaning
from ml_assets.spec.training_program import Ref, ShardSchema, TrainResult, World
from ml_assets.spec.training_program.events import Event, Failed, Lost, Progress, Warning
from ml_assets.spec.training_program.identity import Node
from ml_assets.store.kept_code import kept_network
from ml_assets.store.objects import LocalObjects
from ml_assets.store.pipeline_context import Pipeline

MEMBER = "ensemble_member"
"""The name of a model by another seed among the inputs of an ensemble."""


def begun_record(
    pipeline: Pipeline,
    run: str,
    job: TrainJob,
    data: StageRecord,
    commit: str,
    given: Given,
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
        inputs=[
            run_input(data, commit),
            *(one.as_run_input() for one in given.values()),
            *(_member(number, one) for number, one in enumerate(job.members, start=1)),
        ],
        outputs={"training_set": data.data_version},
        metrics={},
        world=world,
        salt=job.salt,
        program=program_of(job),
        search=search_origin(pipeline),
    )


def _member(number: int, model: Ref) -> RunInput:
    said = f"seed + {number}"
    return RunInput(
        key=MEMBER, partition=None, version=model.digest, commit=None, rows=None, path=said
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


def train_job(pipeline: Pipeline, data: StageRecord, fresh: str | None, given: Given) -> TrainJob:
    """The training that the spec asks for, on exactly this set, from exactly these models."""
    spec, refs = pipeline.spec, {key: one.ref for key, one in given.items()}
    where = data_ref(pipeline, data)
    return TrainJob(
        pipeline.name,
        spec.model,
        spec.training,
        where,
        fresh,
        refs.get(INIT_FROM),
        refs.get(DISTILL),
        cluster=spec.cluster,
        code=kept_network(pipeline),
    )


def row_order(job: TrainJob, schema: ShardSchema) -> str | None:
    """Say how the rows of an epoch are mixed, why, and at what cost; None: trees take them all."""
    training = job.training
    if "order" in without_meaning(job.model):
        return None
    if training.order == "rows":
        return "rows, all of the split mixed with each other: it lies whole on the machine's disk"
    said = "blocks, as training.order says, so that a step reads few places: its rows come from"
    together = training.microbatches * training.block_window
    if schema.task == "ranking" or schema.preprocessing.tokens:  # a block is of queries or windows
        return f"{said} {counted(together, 'block')} at most"
    shards, size = schema.splits["train"], training.block_rows
    there = sum(-(-shard.rows // size) for shard in shards)
    together, split = min(together, there), sum(shard.rows for shard in shards)
    said = f"{said} {counted(together, 'block')}"
    if together == there:
        return f"{said}, all of the {counted(split, 'row')}: order: rows would mix them as well"
    return (
        f"{said}, {together * size / split:.0%} of the {counted(split, 'row')}. On the flights of"
        " ml-assets demo, a third was as good as all rows, and a twelfth ended 0.003 of the"
        " validation loss higher"
    )


def data_ref(pipeline: Pipeline, record: StageRecord) -> Ref:
    """Return where a training set lies, from its record; its rows are brought where they are read.

    Raises:
        StorageError: the record leads out of the object store.
    """
    named = Ref(uri=record.attributes["uri"], digest=record.attributes["digest"])
    return pipeline.objects.own(named, "shards", record.key.split("/")[0], whole=False)


def adopt_model(objects: LocalObjects, produced: Ref) -> Ref:
    """Copy a session's model to its content address: ``models/<digest>``; safe to repeat."""
    return objects.adopt(produced, "models", "model.json")


def remember_session(instance: Instance, run_id: str, session: str) -> None:
    """Add a session to the run's tags; safe to repeat."""
    run = instance.get_run_by_id(run_id)
    if run is None:
        return
    known = run.tags.get(SESSIONS_TAG, "").split()
    if session not in known:
        instance.add_run_tags(run_id, {SESSIONS_TAG: " ".join([*known, session])})


def teller(log: RunLog) -> OnEvent:
    """Passes what a session says in words on to a run's log."""

    def tell(event: Event) -> None:
        match event:
            case Progress():
                log.info(event.message)
            case Warning():
                log.warning(event.message)
            case Failed():
                log.error(event.reason)
            case _:
                pass

    return tell
