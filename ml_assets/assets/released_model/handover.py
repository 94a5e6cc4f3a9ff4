"""Builds the hand-over of a release for another server, from stored records."""

import numpy as np

from ml_assets.assets.evaluation_report.last_release import read_report
from ml_assets.assets.released_model.golden import ABSOLUTE, RELATIVE, golden_vectors
from ml_assets.assets.released_model.predict import feature_columns, named_predictions
from ml_assets.assets.released_model.promote import Refused
from ml_assets.assets.released_model.rollback import way_back
from ml_assets.errors import StorageError
from ml_assets.graph.inputs import require_record
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.origin import find_origin
from ml_assets.records.loading import LoadedRelease
from ml_assets.spec.gates import HIGHER_IS_BETTER, METRICS_OF
from ml_assets.spec.handover import Golden, Handover, Tensor
from ml_assets.spec.program import ModelManifest
from ml_assets.spec.records import EvaluationReport, Measured, SliceMetrics
from ml_assets.spec.training import outputs_of
from ml_assets.store.pipeline_context import Pipeline

_WATCHED = 10
_TYPES = {"float64": "FP64", "string": "BYTES"}


def handover_of(pipeline: Pipeline, release: LoadedRelease) -> Handover:
    """The document of a release; its golden vectors are predicted now, on this machine.

    Raises:
        StorageError: its records are not kept any more.
    """
    model, entry = release.model.digest, release.entry
    origin = find_origin(pipeline.store, pipeline.name, model)
    if origin is None:
        raise StorageError(
            f"{pipeline.name}: no commit has the report of model {model[:12]} any more. Release a"
            f" model again: ml-assets run {pipeline.name} --fresh"
        )
    then = pipeline.at(origin.commit)
    record = require_record(then, pipeline.address("evaluation_report"))
    report, provenance = read_report(then), release.certificate.provenance
    back = way_back(read(pipeline.store, pipeline.name), pipeline.spec.release)
    inputs, outputs = tensors(release.manifest)
    return Handover(
        pipeline=pipeline.name,
        model=model,
        stage=pipeline.spec.release.to,
        ledger_line=entry.seq,
        released=entry.time,
        author=entry.author,
        reason=entry.reason,
        inputs=inputs,
        outputs=outputs,
        golden=_golden(pipeline, release),
        rollback_to=None if isinstance(back, Refused) else back.back,
        rollout=pipeline.spec.release.rollout,
        drift_profile=provenance.baseline if provenance else None,
        slices=_worst(report, release.manifest),
        metrics=report.metrics,
        measured=Measured.model_validate(record.attributes["measured"]),
    )


def tensors(manifest: ModelManifest) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The inputs and the outputs of a model."""
    nothing = np.zeros((1, outputs_of(manifest.task, manifest.classes)))
    read, said = feature_columns(manifest), named_predictions(nothing, manifest)
    return (
        tuple(Tensor.model_validate({"name": n, "datatype": _TYPES[t]}) for n, t in read.items()),
        tuple(
            Tensor(name=name, datatype="BYTES" if isinstance(values, list) else "FP64")
            for name, values in said.items()
        ),
    )


def _golden(pipeline: Pipeline, release: LoadedRelease) -> Golden:
    found = golden_vectors(pipeline, release)
    said = named_predictions(found.predictions, release.manifest)
    return Golden(
        inputs={name: tuple(found.rows[name].to_list()) for name in found.rows.columns},
        outputs={
            name: tuple(values if isinstance(values, list) else values.tolist())
            for name, values in said.items()
        },
        relative=RELATIVE,
        absolute=ABSOLUTE,
    )


def _worst(report: EvaluationReport, manifest: ModelManifest) -> tuple[SliceMetrics, ...]:
    """The slices that the model does worst on, by the first metric of its task that they have."""
    for metric in METRICS_OF[manifest.task]:
        found = [one for one in report.slices if metric in one.metrics]
        if found:
            found.sort(key=lambda one: one.metrics[metric], reverse=not HIGHER_IS_BETTER[metric])
            return tuple(found[:_WATCHED])
    return ()
