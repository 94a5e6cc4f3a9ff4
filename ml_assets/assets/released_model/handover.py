"""Builds the hand-over of a release for another server, from stored records.

Its golden vectors are rows on which a model is tried before it answers, with the expected answers.
They are drawn from the model's own preprocessing, so no person's row goes with a release.
"""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.assets.evaluation_report.stored_report import read_report
from ml_assets.assets.released_model.predict import feature_columns, named_predictions, score
from ml_assets.assets.released_model.rollback import models_before
from ml_assets.errors import StorageError
from ml_assets.graph.inputs import require_record
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.origin import find_origin
from ml_assets.records.load_release import LoadedModel, LoadedRelease
from ml_assets.records.recalls import recalled
from ml_assets.spec.gates import HIGHER_IS_BETTER, METRICS_OF
from ml_assets.spec.handover import Golden, Handover, Tensor
from ml_assets.spec.records import EvaluationReport, Measured, SliceMetrics
from ml_assets.spec.training import outputs_of
from ml_assets.spec.training_program import ModelManifest
from ml_assets.store.objects import bytes_digest
from ml_assets.store.pipeline_context import Pipeline

_WATCHED = 10
_TYPES = {"float64": "FP64", "string": "BYTES"}


def handover_of(pipeline: Pipeline, release: LoadedRelease, envelope: bytes) -> Handover:
    """The document of a release; its golden vectors are predicted now, on this machine.

    Args:
        envelope: its certificate, as it is exported.

    Raises:
        StorageError: its records are no longer kept.
    """
    model, entry = release.model.digest, release.entry
    origin = find_origin(pipeline.store, pipeline.name, model)
    if origin is None:
        raise StorageError(
            f"{pipeline.name}: no commit has the report of model {model[:12]}. Release a"
            f" model again: ml-assets run {pipeline.name} --fresh"
        )
    then = pipeline.at(origin.commit)
    record = require_record(then, pipeline.address("evaluation_report"))
    report, provenance = read_report(then), release.certificate.provenance
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
        rollback_to=_back_to(pipeline),
        rollout=pipeline.spec.release.rollout,
        drift_profile=provenance.baseline if provenance else None,
        slices=_worst(report, release.manifest),
        metrics=report.metrics,
        measured=Measured.model_validate(record.attributes["measured"]),
        certificate=bytes_digest(envelope),
    )


def _back_to(pipeline: Pipeline) -> str | None:
    """The newest model that was in the stage before and that may still be used."""
    store, name, release = pipeline.store, pipeline.name, pipeline.spec.release
    now = store.resolve()
    earlier = models_before(read(store, name, now), release)
    return next((model for model in earlier if not recalled(store, now, name, model)), None)


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


ROWS = 16
RELATIVE, ABSOLUTE = 1e-5, 1e-6
"""Another machine rounds float32 another way; another model is further off."""
_NEVER_SEEN = "(never seen)"


@dataclass(frozen=True)
class GoldenVectors:
    """Rows [rows, columns] and the predictions [rows, outputs] that belong to them."""

    rows: pl.DataFrame
    predictions: NDArray[np.float64]

    def require(self, model: str, found: NDArray[np.float64]) -> None:
        """Refuse predictions that are not the golden ones.

        Raises:
            StorageError: they are others; the first such row is named.
        """
        same = found.shape == self.predictions.shape
        near = same and np.isclose(found, self.predictions, RELATIVE, ABSOLUTE).all(axis=1)
        if np.all(near):
            return
        row = int(np.argmin(near)) if same else 0
        raise StorageError(
            f"Model {model[:12]} gives other predictions for its golden vectors than when it was "
            f"judged: row {row + 1} of {len(self.rows)} is {found[row].tolist()}, expected "
            f"{self.predictions[row].tolist()}. It is not served. Another version of torch may be "
            "installed here."
        )


def golden_vectors(pipeline: Pipeline, model: LoadedModel) -> GoldenVectors:
    """The golden vectors of a model, predicted on this machine by the program that judged it."""
    rows = golden_rows(model.manifest)
    here = replace(pipeline, settings=replace(pipeline.settings, launcher="local"))
    return GoldenVectors(rows, score(here, model, rows))


def golden_rows(manifest: ModelManifest) -> pl.DataFrame:
    """Rows [ROWS, columns] that a model of this preprocessing may meet; always the same."""
    draw = np.random.default_rng(0)
    read = manifest.preprocessing
    found: dict[str, list[float | str | None]] = {}
    for column in read.numeric:
        values = column.mean + column.std * draw.standard_normal(ROWS)
        lost = draw.random(ROWS) < 0.1  # a tenth has no value
        pairs = zip(values, lost, strict=True)
        found[column.name] = [None if gone else float(value) for value, gone in pairs]
    for column in read.categorical:
        words = [_NEVER_SEEN, *column.vocabulary]
        found[column.name] = [words[place] for place in draw.integers(len(words), size=ROWS)]
    types = {"float64": pl.Float64, "string": pl.String}
    schema = {name: types[dtype] for name, dtype in feature_columns(manifest).items()}
    return pl.DataFrame(found, schema=schema)
