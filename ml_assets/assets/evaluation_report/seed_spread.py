"""Measures, once for each spec, how much models differ that were trained from other seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ml_assets.adapters.step import AssetStep
from ml_assets.assets.evaluation_report.metrics.metrics import judged
from ml_assets.assets.evaluation_report.rows import Holdout, Truth
from ml_assets.assets.trained_model.training_job import data_ref, remember_session, teller
from ml_assets.errors import counted
from ml_assets.graph.code_version import file_digests
from ml_assets.launch.launcher import Launcher, TrainJob
from ml_assets.launch.session_name import NOT_IN_THE_RESULT, train_session
from ml_assets.records.recalls import quarantine
from ml_assets.spec.base import digest_of
from ml_assets.spec.gates import AgainstChampion
from ml_assets.spec.records import SeedSpread, StageRecord
from ml_assets.spec.training_program import Ref
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, PipelineState

Score = Callable[[Ref], np.ndarray]
"""A model -> its [n, outputs] predictions of the holdout."""


@dataclass(frozen=True)
class Seeds:
    """The spread between seeds of one spec, known or yet to be measured."""

    pipeline: Pipeline
    context: AssetStep
    launcher: Launcher
    known: SeedSpread | None
    """Measured for an earlier report."""
    model: StageRecord
    """The record of the model that is judged."""
    data: StageRecord
    """The record of the training set."""

    def spread(self, holdout: Holdout, score: Score) -> SeedSpread | None:
        """The spread over seeds as it was measured once; None where no gate asks for it.

        Raises:
            TrainingFailed: a model of another seed could not be trained.
        """
        asked = seeds_asked(self.pipeline)
        if not asked:
            return None
        if self.known is not None and len(self.known.seeds) >= asked:
            return self.known
        first = self.pipeline.spec.training.seed
        seeds = range(first, first + asked)
        self.context.log.info(
            f"the spread over {counted(asked, 'seed')} is measured, once for this spec"
        )
        predictions = [score(self._trained(seed)) for seed in seeds]
        return spread_of(
            holdout.truth,
            predictions,
            spec=trained_alike(self.pipeline),
            data=data_ref(self.pipeline, self.data).digest,
            seeds=seeds,
        )

    def _trained(self, seed: int) -> Ref:
        """The model of a seed; a session that ended is not run again."""
        spec = self.pipeline.spec
        training = spec.training.model_copy(update={"seed": seed})
        known = self.model.attributes
        init, teacher = (
            Ref.model_validate(known[name]) if name in known else None
            for name in ("init", "teacher")
        )
        data = data_ref(self.pipeline, self.data)
        job = TrainJob(
            spec.name,
            spec.model,
            training,
            data,
            init=init,
            teacher=teacher,
            cluster=spec.cluster,
            code=self.pipeline.network,
            evidence=bool(self.pipeline.store.keys.trusted),
        )
        remember_session(self.context.instance, self.context.run.run_id, train_session(job))
        return self.launcher.train(job, teller(self.context.log)).model


def seeds_asked(pipeline: Pipeline) -> int:
    """Return how many models the gates want to see differ in the seed alone; 0: none."""
    gates = [gate for gate in pipeline.spec.gates if isinstance(gate, AgainstChampion)]
    return max((gate.seeds for gate in gates), default=0)


def known_spread(state: PipelineState) -> SeedSpread | None:
    """Return what an earlier report of this spec measured; on recalled data that is nothing."""
    path = Address(state.name, "evaluation_report").file(spread_file(state.pipeline))
    if not state.exists(path):
        return None
    spread = SeedSpread.model_validate_json(state.read_bytes(path))
    data = state.address("training_set").key
    return None if quarantine(state.store, state.commit).of(data, None, spread.data) else spread


def spread_file(pipeline: Pipeline) -> str:
    """The name of its record, beside the report: it stays there when the next report is made."""
    return f"seeds-{trained_alike(pipeline)[:16]}.json"


def trained_alike(pipeline: Pipeline) -> str:
    """Digest of what decides how much seeds matter; other rows of the same data are the same spec,
    other features of it are not."""
    spec, left_out = pipeline.spec, {*NOT_IN_THE_RESULT, "seed"}
    code = pipeline.network
    functions = [
        file_digests(pipeline, "feature_set", None),
        *(file_digests(pipeline, "derived_table", table) for table in spec.tables),
    ]
    return digest_of(
        {
            "model": spec.model.model_dump(mode="json"),
            **({"code": code.digest} if code else {}),
            "training": spec.training.model_dump(mode="json", exclude=left_out),
            "functions": functions,
            "features": spec.features.model_dump(mode="json", exclude={"subject"}),
            "label": spec.label.model_dump(mode="json"),
            "split": spec.split.model_dump(mode="json"),
        }
    )


def spread_of(
    truth: Truth, predictions: Sequence[np.ndarray], *, spec: str, data: str, seeds: Sequence[int]
) -> SeedSpread:
    """Standard deviations (of a sample: n - 1) of the mean loss and of each metric all have.

    Args:
        predictions: [n, outputs] of each seed's model, in the order of the seeds.
        spec: digest of what they were trained by.
        data: digest of the training set.
    """
    models = [judged(truth, scores) for scores in predictions]
    points = [model.points() for model in models]
    deviations = {
        str(name): float(np.std([one[name] for one in points], ddof=1))
        for name in points[0]
        if all(name in one for one in points)
    }
    return SeedSpread(
        spec=spec,
        data=data,
        seeds=tuple(seeds),
        loss=float(np.std([model.losses().mean() for model in models], ddof=1)),
        metrics=deviations,
    )
