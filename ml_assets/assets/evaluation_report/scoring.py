"""Scoring rows with exported weights, through the training program: no torch in this process."""

from dataclasses import dataclass
from io import BytesIO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.adapters.step import AssetStep
from ml_assets.assets.evaluation_report.build_report import ChampionScores
from ml_assets.assets.trained_model.training_job import remember_session, teller
from ml_assets.assets.training_set.shards import NotComparable, write_scoring_set
from ml_assets.errors import EvidenceError
from ml_assets.launch.launcher import Launcher, ScoreJob
from ml_assets.launch.session_name import score_session
from ml_assets.spec.network_code import NetworkCode
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import Measured
from ml_assets.spec.training_program import ModelManifest, Ref, ScoreResult, Split
from ml_assets.store.kept_code import certified_network, own_network
from ml_assets.store.objects import read_verified
from ml_assets.store.pipeline_context import Pipeline


@dataclass(frozen=True)
class Subject:
    """A model to score, its files held to its digest."""

    ref: Ref
    manifest: ModelManifest
    code: NetworkCode | None
    """The code of a team's own network."""

    @classmethod
    def own(cls, pipeline: Pipeline, ref: Ref, manifest: ModelManifest) -> "Subject":
        """A model that the pipeline has trained; see ``own_network``.

        Raises:
            EvidenceError: it reads more of a row than the features, the label for one.
        """
        require_features(pipeline.spec, ref, manifest)
        return cls(ref, manifest, own_network(pipeline, manifest))

    @classmethod
    def certified(cls, pipeline: Pipeline, ref: Ref, manifest: ModelManifest) -> "Subject":
        """A model that was decided on; see ``certified_network``."""
        return cls(ref, manifest, certified_network(pipeline, manifest))


def require_features(spec: PipelineSpec, model: Ref, manifest: ModelManifest) -> None:
    """Hold a model that was taken up to the features of the spec: its rows have their label beside
    them.

    Raises:
        EvidenceError: it reads another column.
    """
    features = {*spec.features.numeric, *spec.features.categorical}
    read = manifest.preprocessing
    columns = (*(one.name for one in (*read.numeric, *read.categorical)), *read.null_flags)
    if other := next((name for name in columns if name not in features), None):
        raise EvidenceError(
            f"{spec.name}: the model {model.digest[:12]} reads {other!r}, which is not a feature "
            f"of {spec.name}. It is not judged. Train again: ml-assets run {spec.name} --fresh"
        )


@dataclass(frozen=True)
class Scored:
    """The predictions of a split, [rows, outputs] in the order of its rows, and their speed."""

    predictions: NDArray[np.float64]
    result: ScoreResult
    validation: NDArray[np.float64] | None = None
    """The same of the validation split, where it was scored along."""

    def measured(self) -> Measured:
        """Return what the clock said; not the same twice."""
        return Measured(
            latency_ms=self.result.latency_ms,
            rows_per_second=self.result.rows_per_second,
            latency_p99_ms=self.result.latency_p99_ms,
            memory_mb=self.result.memory_mb,
        )


@dataclass(frozen=True)
class Scorer:
    """Scores rows of now with any model, each encoded with the model's own preprocessing."""

    context: AssetStep
    launcher: Launcher
    pipeline: Pipeline

    def score(self, model: Subject, rows: pl.DataFrame) -> Scored | NotComparable:
        """A model on labelled rows of the feature set."""
        pipeline = self.pipeline
        shards = pipeline.objects.folder("shards", pipeline.name)
        data = write_scoring_set(rows, model.manifest, pipeline.spec.label, shards)
        if isinstance(data, NotComparable):
            return data
        return score(self.context, self.launcher, pipeline.spec, model, data, "holdout")

    def champion(self, rival: Subject, rows: pl.DataFrame) -> ChampionScores:
        """A released model on the same rows as another one."""
        scored = self.score(rival, rows)
        if isinstance(scored, NotComparable):
            return ChampionScores(rival.ref.digest, None, scored.reason)
        return ChampionScores(rival.ref.digest, scored.predictions, "")


def score(
    context: AssetStep,
    launcher: Launcher,
    spec: PipelineSpec,
    model: Subject,
    data: Ref,
    split: Split,
) -> Scored:
    """Score one split with one model.

    Raises:
        TrainingFailed: the program failed; the message gives its reason.
        StorageError: the predictions are not what the program wrote.
    """
    threads, spot = spec.training.threads, spec.training.spot is not None
    job = ScoreJob(spec.name, model.ref, data, split, threads, spec.cluster, model.code, spot)
    remember_session(context.instance, context.run.run_id, score_session(job))
    result = launcher.score(job, teller(context.log))
    content = read_verified(result.predictions)
    return Scored(np.load(BytesIO(content), allow_pickle=False), result)
