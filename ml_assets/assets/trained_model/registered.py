"""Makes a model that was made elsewhere the candidate, in the place of a training.

Nothing is trained. The ledger knows the model by its registration, which has checked its files.
From here on it goes the way of any other: the report, the gates, the release.
"""

from datetime import timedelta

from ml_assets.adapters.step import AssetStep
from ml_assets.assets.raw_snapshot.sources import Sources
from ml_assets.assets.trained_model.training_job import data_ref
from ml_assets.errors import EvidenceError
from ml_assets.graph.inputs import require_record
from ml_assets.graph.publish import Draft, Published, Work, input_version
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import registration
from ml_assets.records.load_release import open_files
from ml_assets.records.record_history import keep_run_record
from ml_assets.records.run_record import (
    RUN_FILE,
    RunRecord,
    environment,
    record_bytes,
    run_input,
    run_record,
)
from ml_assets.spec.partitions import windows
from ml_assets.spec.records import StageRecord
from ml_assets.spec.registered import MADE_ELSEWHERE, Registered
from ml_assets.spec.training_program import Ref
from ml_assets.spec.training_program.identity import program_here
from ml_assets.store.pipeline_context import Pipeline, PipelineState

_AHEAD = timedelta(days=31)
"""The local clock may be this far behind."""


def publish_registered(context: AssetStep, pipeline: Pipeline, model: str) -> Published:
    """Publish a registered model as the pipeline's candidate, to be judged on the holdout of now.

    Args:
        model: its digest.

    Raises:
        EvidenceError: the ledger knows no registration of it.
        StorageError: its files are not what its digest names, or there is no training set.
        SourceError: a source cannot be looked at.
    """
    said = registration(read(pipeline.store, pipeline.name), model)
    if said is None:
        raise EvidenceError(
            f"{pipeline.name}: the ledger knows no model {model[:12]!r} that was made elsewhere."
            " Register it: POST /api/v1/models/register"
        )
    ref, _ = open_files(pipeline.objects, pipeline.name, model)
    now, run = pipeline.now(), context.run.run_id
    data = require_record(now, pipeline.address("training_set"))
    record = keep_run_record(pipeline.store, _record(now, run, data, ref, said))
    context.log.info(f"{model[:12]} was made elsewhere ({said.uri}): nothing is trained")
    inputs = (input_version(data, now.commit),)
    salt = f"{model} in {run}"  # it may come again, when another one was trained meanwhile
    work = Work(pipeline.address("trained_model"), MADE_ELSEWHERE, inputs, run, salt)
    there = _newest_there(now)
    with Draft(pipeline, work, pipeline.store.resolve("main")) as draft:
        draft.text(RUN_FILE, record_bytes(record))
        return draft.publish(
            attributes={
                "session": record.session,
                "model": ref.model_dump(),
                "data": data_ref(pipeline, data).model_dump(),
                "registered": said.model_dump(),
                "there_to": there,
                "metrics": {},
                "mlflow_run": None,
            },
            data_version=model,
        )


def _newest_there(now: PipelineState) -> str | None:
    """The newest partition that is there, read or not, over or not: the model's makers may have
    rows of it."""
    sources = Sources(now.pipeline.settings)
    newest = max(now.partitions(now.pipeline.address("feature_set")), default="")
    spans = windows(now.spec.partitions, sources.now() + _AHEAD)
    unread, there = [span for span in spans if span.key > newest], [newest]
    for name, source in now.spec.sources.items():
        if source.partitioned and not source.versioned:  # a version counts for all that come
            looked = sources.look(name, source, unread)
            there += [key for key in (*looked.keys, *looked.waiting) if key]
    return max(there) or None


def _record(
    now: PipelineState, run: str, data: StageRecord, model: Ref, said: Registered
) -> RunRecord:
    spec = now.spec
    return run_record(
        environment(now.pipeline.settings),
        pipeline=now.name,
        session=f"{now.name}-registered-{model.digest[:16]}",
        run=run,
        config=spec,
        seed=spec.training.seed,
        inputs=[run_input(data, now.commit)],
        outputs={"training_set": data.data_version, "model": model.digest},
        metrics={},
        program=program_here("score"),
        registered=said,
    )
