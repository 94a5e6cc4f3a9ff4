"""Evaluates a model once, and publishes the report with the files beside it."""

from dataclasses import dataclass

import polars as pl

from ml_assets.adapters.step import AssetStep
from ml_assets.assets.evaluation_report.drift_baseline import BASELINE_FILE, Baseline, make_baseline
from ml_assets.assets.evaluation_report.evaluator import Evaluator, rival_of
from ml_assets.assets.evaluation_report.rolling_origin import RolledOrigins, RollingOrigin
from ml_assets.assets.evaluation_report.scoring import Subject
from ml_assets.assets.evaluation_report.seed_spread import Seeds, known_spread, spread_file
from ml_assets.assets.evaluation_report.stored_report import changes_since
from ml_assets.assets.evaluation_report.suspect_labels import SUSPECTS_FILE
from ml_assets.assets.trained_model.training_job import data_ref
from ml_assets.graph.inputs import require_record
from ml_assets.graph.publish import Draft, Published, Work, input_version
from ml_assets.launch.launcher import Launcher
from ml_assets.records.load_release import open_files
from ml_assets.records.run_record import (
    RUN_FILE,
    RunRecord,
    environment,
    record_bytes,
    run_input,
    run_record,
)
from ml_assets.spec.base import canonical_json, digest_of
from ml_assets.spec.records import (
    REPORT_FILE,
    EvaluationReport,
    InputVersion,
    Measured,
    ReleaseChanges,
    StageRecord,
)
from ml_assets.store.pipeline_context import PipelineState


@dataclass(frozen=True)
class Evaluation:
    """A model judged on its holdout; nothing is published yet."""

    state: PipelineState
    """What was published when it began."""
    model: StageRecord
    data: StageRecord
    """The record of the training set, whose holdout it is."""
    rival: Subject | None
    """The champion that it was compared with."""
    report: EvaluationReport
    measured: Measured
    wrong: pl.DataFrame | None
    """The rows that the model is most wrong about, where the spec asks for them."""
    baseline: Baseline | None
    """What drift is held to; None where the spec does not watch for it."""
    since: ReleaseChanges | None
    """What changed since the last release."""
    rolled: RolledOrigins | None
    """The holdouts before the newest, where the spec asks for them."""

    @property
    def inputs(self) -> tuple[InputVersion, ...]:
        """The model and the training set."""
        commit = self.state.commit
        return (input_version(self.model, commit), input_version(self.data, commit))

    @property
    def seen(self) -> tuple[InputVersion, ...]:
        """The champion at the time, and the rows of earlier origins: others make no other report
        due."""
        earlier = self.rolled.inputs if self.rolled else ()
        if self.rival is None:
            return earlier
        digest = self.rival.ref.digest
        champion = InputVersion(key="champion", partition=None, version=digest, commit=None)
        return (champion, *earlier)


def evaluate(context: AssetStep, launcher: Launcher, state: PipelineState) -> Evaluation:
    """Judge the trained model on its holdout, beside the baselines and the champion.

    Raises:
        StorageError: the model or its set is not there, or not what its record says.
        TrainingFailed: the program could not score, or train a model of another seed.
    """
    pipeline = state.pipeline
    trained = require_record(state, pipeline.address("trained_model"))
    data = require_record(state, pipeline.address("training_set"))
    evaluator = Evaluator(pipeline, context, launcher, data_ref(pipeline, data))
    found = open_files(pipeline.objects, pipeline.name, trained.data_version)
    model = Subject.own(pipeline, *found)
    rival = rival_of(state, trained.data_version)
    seeds = Seeds(pipeline, context, launcher, known_spread(state), trained, data)
    report, scored = evaluator.judge(model, tuple(data.attributes["holdout"]), rival, seeds)
    report = report.model_copy(update={"partial": tuple(data.attributes.get("partial", ()))})
    rolled, asked = None, pipeline.spec.evaluation.origins
    if asked is not None:
        rolled = RollingOrigin(state, context, launcher, data).roll(asked, report)
        report = report.model_copy(update={"origins": rolled.reports})
    return Evaluation(
        state,
        trained,
        data,
        rival,
        report,
        scored.measured(),
        evaluator.suspects(scored),
        make_baseline(state, data, trained.data_version, scored.predictions),
        changes_since(context.log, state, report),
        rolled,
    )


def publish_evaluation(made: Evaluation, work: Work) -> Published:
    """Publish a report with its run record, and what else was made of the same scores."""
    report, baseline, pipeline = made.report, made.baseline, made.state.pipeline
    with Draft(pipeline, work, made.state.commit, rows=report.rows) as draft:
        draft.text(REPORT_FILE, canonical_json(report))
        draft.text(RUN_FILE, record_bytes(_run_record(made, work.run)))
        if report.champion and report.champion.seeds:
            draft.text(spread_file(pipeline), canonical_json(report.champion.seeds))
        if made.wrong is not None:
            draft.extra_table(SUSPECTS_FILE, made.wrong, pipeline.spec.features.key)
        if baseline:
            draft.text(BASELINE_FILE, canonical_json(baseline))
        return draft.publish(
            attributes={
                "measured": made.measured.model_dump(),
                "metrics": {name: i.value for name, i in report.metrics.items()},
                "changes": made.since.model_dump() if made.since else None,
                **({"baseline": digest_of(baseline)} if baseline else {}),
                **({"origins": made.rolled.cost} if made.rolled else {}),
            },
            data_version=digest_of(report),
        )


def _run_record(made: Evaluation, run: str) -> RunRecord:
    """What it takes to judge the model again: not always the spec that it was trained by."""
    pipeline, commit, report = made.state.pipeline, made.state.commit, made.report
    return run_record(
        environment(pipeline.settings),
        pipeline=pipeline.name,
        session=made.model.attributes["session"],
        run=run,
        config=pipeline.spec,
        seed=pipeline.spec.training.seed,
        inputs=[run_input(made.model, commit), run_input(made.data, commit)],
        outputs={"model": report.model, "report": digest_of(report)},
        metrics={name: interval.value for name, interval in report.metrics.items()},
    )
