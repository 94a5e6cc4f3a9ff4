"""Shows a study in MLflow: a run of its own, and one below it for each trial. It is only a copy."""

from collections.abc import Sequence
from dataclasses import dataclass

from ml_assets.adapters.step import AssetStep
from ml_assets.assets.hyperparameter_search.plan import StudyPlan
from ml_assets.assets.hyperparameter_search.trial import Running
from ml_assets.assets.trained_model.initial_weights import INIT_FROM, GivenModel
from ml_assets.launch.session_name import program_of
from ml_assets.records.run_record import (
    Environment,
    RunInput,
    RunRecord,
    SearchOrigin,
    environment,
    record_bytes,
    run_record,
)
from ml_assets.records.tracking.mlflow import Tracking, Unavailable
from ml_assets.records.tracking.outbox import Outbox, OutboxEntry, tell_whole
from ml_assets.spec.base import canonical_json
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.search import with_values
from ml_assets.spec.study_record import STUDY_FILE, Study, Trial, value_of
from ml_assets.store.pipeline_context import Pipeline

_PARENT = "mlflow.parentRunId"
_NAME = "mlflow.runName"
_STUDY, _END = "ml_assets.study", "ml_assets.trial_end"


@dataclass
class TrackedStudy:
    """Tells MLflow of a study while it runs; what it does not take now, the next run delivers."""

    context: AssetStep
    pipeline: Pipeline
    plan: StudyPlan
    read: Sequence[RunInput]
    """The training set, and the weights to begin with."""
    environment: Environment
    tracking: Tracking
    outbox: Outbox
    run: str | None
    """MLflow's own name of the study's run; None: it did not answer."""

    @classmethod
    def open(
        cls, context: AssetStep, pipeline: Pipeline, plan: StudyPlan, read: Sequence[RunInput]
    ) -> "TrackedStudy":
        """Begin the run of the study."""
        here = environment(pipeline.settings)
        tracking = Tracking.of(pipeline.settings)
        outbox = Outbox(pipeline.settings.home, pipeline.objects)
        tags = {"dagster.run_id": context.run.run_id, _NAME: f"study {plan.name[-20:]}"}
        params = {
            path: str(one.model_dump(mode="json", exclude_none=True))
            for path, one in plan.search.parameters.items()
        }
        run = tracking.open_run(pipeline.name, plan.name, tags, params)
        if isinstance(run, Unavailable):
            context.log.warning(f"MLflow does not know of this study yet: {run.reason}")
            run = None
        return cls(context, pipeline, plan, read, here, tracking, outbox, run)

    def trial(self, trial: Trial, one: Running) -> None:
        """A training has ended: its curves, its parameters, how it ended, and its run record."""
        if trial.own and not one.repeat:  # its run is that of the model
            return
        parent = {_PARENT: self.run} if self.run else {}
        entry = OutboxEntry(
            pipeline=self.pipeline.name,
            session=trial.session,
            status="FAILED" if trial.end == "failed" else "FINISHED",
            tags={
                "dagster.run_id": self.context.run.run_id,
                _STUDY: self.plan.name,
                _END: trial.end,
                _NAME: one.named,
                **parent,
            },
            params={path: str(value) for path, value in trial.values.items()},
            record=record_bytes(self._record(trial, one)).decode(),
        )
        if isinstance(tell_whole(self.tracking, entry, one.story), Unavailable):
            self.outbox.add(entry)

    def _record(self, trial: Trial, one: Running) -> RunRecord:
        """All it takes to make a trial again, as the record of a model says it."""
        metric = self.plan.search.metric
        found = run_record(
            self.environment,
            pipeline=self.pipeline.name,
            session=trial.session,
            run=self.context.run.run_id,
            config=self._config(trial, one),
            seed=one.job.training.seed,
            inputs=[*self.read, *_taken_over(one)],
            outputs={"training_set": self.read[0].version},
            metrics={} if trial.loss is None else {metric: value_of(metric, trial.loss)},
            salt=one.job.salt,
            program=program_of(one.job),
            search=SearchOrigin(
                study=self.plan.name,
                trial=trial.number,
                space=self.plan.search.space,
                values=trial.values,
            ),
        )
        lost, nodes = tuple(one.story.lost), tuple(one.story.nodes)
        return found.model_copy(update={"lost": lost, "nodes": nodes})

    def _config(self, trial: Trial, one: Running) -> PipelineSpec:
        """The spec by its values; of a population with the epochs of its round."""
        spec = with_values(self.plan.spec, trial.values)
        if one.repeat:
            seed = {"seed": one.job.training.seed}
            return spec.model_copy(update={"training": spec.training.model_copy(update=seed)})
        if one.proposal.part is None:
            return spec
        return spec.model_copy(update={"training": one.job.training})

    def close(self, study: Study) -> None:
        """The study is over: its best loss, and its record."""
        if self.run is None:
            return
        metric = self.plan.search.metric
        losses = {"best": study.best.loss, "own": study.own.loss}
        told = {f"{of}_{metric}": value_of(metric, v) for of, v in losses.items() if v is not None}
        self.tracking.log_metrics(self.run, {0: told}, now=True)
        self.tracking.log_text(self.run, canonical_json(study).decode(), STUDY_FILE)
        self.tracking.close(self.run, "FINISHED")


def _taken_over(one: Running) -> Sequence[RunInput]:
    """The weights that a member of a population took over."""
    part = one.proposal.part
    if part is None or part.weights is None:
        return ()
    given = GivenModel(INIT_FROM, part.weights, f"trial {part.parent}")
    return (given.as_run_input(),)
