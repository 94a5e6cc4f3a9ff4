"""A study in MLflow: a run of its own, and one below it for each trial. A copy, never the truth."""

from dataclasses import dataclass

from ml_assets.adapters.step import AssetStep
from ml_assets.assets.hyperparameter_search.plan import Plan
from ml_assets.assets.hyperparameter_search.study import Running
from ml_assets.records.tracking.mlflow import Tracking, Unavailable
from ml_assets.records.tracking.outbox import Outbox, OutboxEntry, tell_whole
from ml_assets.spec.canonical import canonical_json
from ml_assets.spec.study import STUDY_FILE, Study, Trial
from ml_assets.store.pipeline_context import Pipeline

_PARENT = "mlflow.parentRunId"
_NAME = "mlflow.runName"
_STUDY, _END = "ml_assets.study", "ml_assets.trial_end"


@dataclass
class TrackedStudy:
    """Tells MLflow of a study while it runs; what it does not take now, the next run delivers."""

    context: AssetStep
    pipeline: Pipeline
    plan: Plan
    tracking: Tracking
    outbox: Outbox
    run: str | None
    """MLflow's own name of the study's run; None: it did not answer."""

    @classmethod
    def open(cls, context: AssetStep, pipeline: Pipeline, plan: Plan) -> "TrackedStudy":
        """Begin the run of the study."""
        tracking = Tracking.of(pipeline.settings)
        outbox = Outbox(pipeline.settings.home, pipeline.objects.path("sessions"))
        tags = {"dagster.run_id": context.run.run_id, _NAME: f"study {plan.name[-20:]}"}
        params = {
            path: str(one.model_dump(mode="json", exclude_none=True))
            for path, one in plan.search.parameters.items()
        }
        run = tracking.open_run(pipeline.name, plan.name, tags, params)
        if isinstance(run, Unavailable):
            context.log.warning(f"MLflow does not know of this study yet: {run.reason}")
            return cls(context, pipeline, plan, tracking, outbox, None)
        return cls(context, pipeline, plan, tracking, outbox, run)

    def trial(self, trial: Trial, one: Running) -> None:
        """A trial has ended: its curves, its parameters, how it ended."""
        if trial.own:  # its run is that of the model
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
                _NAME: f"trial {trial.number}",
                **parent,
            },
            params={path: str(value) for path, value in trial.values.items()},
        )
        if isinstance(tell_whole(self.tracking, entry, one.story), Unavailable):
            self.outbox.add(entry)

    def close(self, study: Study) -> None:
        """The study is over: its best loss, and its record."""
        if self.run is None:
            return
        losses = {0: {"best_validation_loss": study.best.loss or 0.0}}
        self.tracking.log_metrics(self.run, losses, now=True)
        self.tracking.log_text(self.run, canonical_json(study).decode(), STUDY_FILE)
        self.tracking.close(self.run, "FINISHED")
