"""evaluation_report: the exported weights judged on the holdout, beside baselines and champion."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import polars as pl

from ml_assets.adapters.declared import asset_key, stage_asset
from ml_assets.adapters.launcher import LauncherResource
from ml_assets.adapters.metadata import model_links, numbers, pictures, record_metadata
from ml_assets.adapters.run_journal import chronicled
from ml_assets.adapters.stores import StoresResource
from ml_assets.assets.evaluation_report.baselines import Rows, score_baseline, score_rule
from ml_assets.assets.evaluation_report.drift_baseline import BASELINE_FILE
from ml_assets.assets.evaluation_report.drift_baseline_rows import make_baseline
from ml_assets.assets.evaluation_report.importance import importance, shuffle
from ml_assets.assets.evaluation_report.judge import ChampionScores, Holdout, judge
from ml_assets.assets.evaluation_report.label_suspects import SUSPECTS_FILE
from ml_assets.assets.evaluation_report.last_release import changes_since
from ml_assets.assets.evaluation_report.pictures import evaluation_pictures, suspects_table
from ml_assets.assets.evaluation_report.robustness import Perturbed, spoil
from ml_assets.assets.evaluation_report.scoring import Scored, Scorer, Subject
from ml_assets.assets.evaluation_report.seed_spread import Seeds, known_spread, spread_file
from ml_assets.assets.evaluation_report.suspects import Scores, has_suspects, suspects
from ml_assets.assets.feature_set.function import load_function
from ml_assets.assets.trained_model.asset import data_ref
from ml_assets.assets.training_set.encoding import encode_rows
from ml_assets.assets.training_set.shards import NotComparable, load_schema, read_rows
from ml_assets.errors import StorageError
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.inputs import require_record
from ml_assets.graph.publish import Draft, Published, Work, input_version
from ml_assets.launch.launcher import Launcher
from ml_assets.records.ledger.chain import read
from ml_assets.records.loading import held_manifest, held_weights, load_release, open_files
from ml_assets.records.recalls import sound_champion
from ml_assets.records.run_record import (
    RUN_FILE,
    RunRecord,
    environment,
    record_bytes,
    run_input,
    run_record,
)
from ml_assets.reports.picture import Picture, Table
from ml_assets.reports.tables import changes_table
from ml_assets.reports.wording import plain_markdown
from ml_assets.spec.canonical import canonical_json, digest_of
from ml_assets.spec.gates import FunctionBaseline, ValueBaseline
from ml_assets.spec.program import Ref, ShardSchema, Split
from ml_assets.spec.records import (
    REPORT_FILE,
    EvaluationReport,
    FeatureImportance,
    InputVersion,
    Measured,
    StageRecord,
)
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, PipelineState

STAGE = "evaluation_report"
ON_AN_ASSET = 10
"""Label suspects that the asset's page shows."""


def evaluation_report(declared: Pipeline) -> dg.AssetsDefinition:
    """The evaluation_report asset of a pipeline."""
    code_version = code_version_of(declared, STAGE)

    @stage_asset(
        declared,
        STAGE,
        description="Metrics with intervals on rows the model never saw, beside the baselines and"
        " the champion on the same rows. The gates are checks on this asset.",
        kinds={"numpy", "scikitlearn"},
        deps=[asset_key(declared, "trained_model"), asset_key(declared, "training_set")],
    )
    @chronicled(declared, STAGE)
    def materialize(
        context: dg.AssetExecutionContext,
        stores: StoresResource,
        launcher: LauncherResource,
    ) -> dg.MaterializeResult:
        pipeline = stores.open(declared, keeps_objects=True)
        base = pipeline.store.resolve("main")
        trained = require_record(pipeline.at(base), pipeline.address("trained_model"))
        data = require_record(pipeline.at(base), pipeline.address("training_set"))
        ref = data_ref(pipeline, data)
        bench = Bench(pipeline, context, launcher.launcher(pipeline), ref)
        model = _trained(pipeline, trained)
        against = _rival(pipeline.at(base), trained.data_version)
        known = known_spread(pipeline.at(base))
        seeds = Seeds(pipeline, context, bench.launcher, known, trained, data)
        report, scored = bench.judge(model, tuple(data.attributes["holdout"]), against, seeds)
        measured, wrong = scored.measured(), bench.suspects(scored)
        baseline = make_baseline(pipeline.at(base), data, trained.data_version, scored.predictions)
        since = changes_since(context.log, pipeline.at(base), report)
        seen = (_champion_input(against.ref.digest),) if against else ()
        inputs = (input_version(trained, base), input_version(data, base))
        work = Work(Address(pipeline.name, STAGE), code_version, inputs, context.run_id, seen=seen)
        with Draft(pipeline, work, base, rows=report.rows) as draft:
            draft.text(REPORT_FILE, canonical_json(report))
            run = _run_record(pipeline, context.run_id, base, trained, data, report)
            draft.text(RUN_FILE, record_bytes(run))
            if report.champion and report.champion.seeds:
                draft.text(spread_file(pipeline), canonical_json(report.champion.seeds))
            if wrong is not None:
                draft.extra_table(SUSPECTS_FILE, wrong, pipeline.spec.features.key)
            if baseline:
                draft.text(BASELINE_FILE, canonical_json(baseline))
            published = draft.publish(
                attributes={
                    "measured": measured.model_dump(),
                    "metrics": {name: i.value for name, i in report.metrics.items()},
                    "changes": since.model_dump() if since else None,
                    **({"baseline": digest_of(baseline)} if baseline else {}),
                },
                data_version=digest_of(report),
            )
        shown = [*evaluation_pictures(report, pipeline.spec), changes_table(since)]
        if wrong is not None:
            shown.append(suspects_table(pipeline.name, wrong, most=ON_AN_ASSET))
        return _result(published, report, measured, shown, model_links(pipeline, trained))

    return materialize


class Bench:
    """Everything that is scored on one holdout, on the same rows in the same order."""

    def __init__(
        self,
        pipeline: Pipeline,
        context: dg.AssetExecutionContext,
        launcher: Launcher,
        data: Ref,
    ) -> None:
        self.pipeline, self.spec = pipeline, pipeline.spec
        self.context, self.launcher = context, launcher
        self.scorer = Scorer(context, launcher, pipeline)
        self.data = data
        self.schema: ShardSchema = load_schema(data)

    def rows(self, split: Split) -> pl.DataFrame:
        """The rows of a split before encoding."""
        return read_rows(self.data, self.schema, split)

    def judge(
        self, model: Subject, span: tuple[str, ...], rival: Subject | None, seeds: Seeds
    ) -> tuple[EvaluationReport, Scored]:
        """The model on its holdout, the baselines and the champion beside it."""
        holdout = Holdout.of(self.spec, self.rows("holdout"), (span[0], span[-1]))
        with ThreadPoolExecutor(1) as beside:  # the scores come from a process of their own
            baselines = beside.submit(self.baselines)
            scored, importance, perturbed = self.model(model, holdout)
            champion = self.champion(rival) if rival else None
            comparable = champion is not None and champion.predictions is not None
            report = judge(
                self.spec,
                model=model.ref.digest,
                data=self.data.digest,
                holdout=holdout,
                predictions=scored.predictions,
                baselines=baselines.result(),
                champion=champion,
                size_bytes=folder_size(Path(model.ref.uri)),
                importance=importance,
                perturbed=perturbed,
                seeds=seeds.spread(holdout, self.predictions) if comparable else None,
            )
        return report, scored

    def suspects(self, scored: Scored) -> pl.DataFrame | None:
        """The rows of validation and holdout that the model is most wrong about."""
        if scored.validation is None:
            return None
        sides: dict[Split, np.ndarray] = {
            "validation": scored.validation,
            "holdout": scored.predictions,
        }
        return suspects(self.spec, {k: Scores(self.rows(k), said) for k, said in sides.items()})

    def model(
        self, model: Subject, holdout: Holdout
    ) -> tuple[Scored, tuple[FeatureImportance, ...], Perturbed | None]:
        """The holdout's scores, how much the model needs each feature, and spoiled copies' scores.

        The validation split is scored along, for the label suspects. All of it is scored at once:
        the program starts only one time.
        """
        rows = self.rows("holdout")
        shuffled = shuffle(self.spec, rows)
        spoiled = spoil(self.spec, rows, self.deviations())
        beside = self.rows("validation") if has_suspects(self.spec) else rows.clear()
        columns = shuffled.stacked.columns
        copies = [shuffled.stacked, *([spoiled.stacked] if spoiled else [])]
        plain = [rows.select(columns), *copies, beside.select(columns)]
        scored = self.score(model, pl.concat(plain, how="vertical_relaxed"))
        if isinstance(scored, NotComparable):  # the model's own features are in its own holdout
            raise StorageError(f"{self.pipeline.name}: the holdout does not fit: {scored.reason}")
        ends = np.cumsum([len(part) for part in (rows, shuffled.stacked)])
        own, mixed, rest = np.split(scored.predictions, ends)
        worse, validation = np.split(rest, [len(rest) - len(beside)])
        found = importance(self.spec, holdout, shuffled, mixed)
        perturbed = Perturbed(spoiled, worse) if spoiled else None
        kept = validation if len(beside) else None
        return Scored(own, scored.result, kept), found, perturbed

    def predictions(self, model: Ref) -> np.ndarray:
        """The predictions of a model trained on this very set, on the holdout as it is."""
        folder = Path(model.uri)  # its session's: it is compared and forgotten, never kept
        manifest = held_manifest(folder, model.digest)
        held_weights(folder, manifest)
        scored = self.score(Subject.own(self.pipeline, model, manifest), self.rows("holdout"))
        if isinstance(scored, NotComparable):
            raise StorageError(f"{self.pipeline.name}: the holdout does not fit: {scored.reason}")
        return scored.predictions

    def deviations(self) -> dict[str, float]:
        """Numeric column -> its standard deviation in the training split."""
        return {column.name: column.std for column in self.schema.preprocessing.numeric}

    def score(self, model: Subject, rows: pl.DataFrame) -> Scored | NotComparable:
        """A model on rows of this holdout, encoded with the model's own preprocessing."""
        return self.scorer.score(model, rows)

    def baselines(self) -> dict[str, np.ndarray]:
        """Name -> predictions on the holdout of each baseline that predicts; then forgotten."""
        both = self._encoded("train"), self._encoded("holdout")
        found: dict[str, np.ndarray] = {}
        for baseline in self.spec.evaluation.baselines:
            self.context.log.info(f"baseline {baseline.name}")
            if isinstance(baseline, FunctionBaseline):
                rule = load_function(self.pipeline.folder, baseline.function, self.pipeline.name)
                found[baseline.name] = score_rule(baseline, rule, *both, self.spec.label)
            elif not isinstance(baseline, ValueBaseline):
                found[baseline.name] = score_baseline(baseline, *both, self.spec.label)
        return found

    def _encoded(self, split: Split) -> Rows:
        frame = self.rows(split)
        numeric, categorical = encode_rows(frame, self.schema.preprocessing)
        return Rows.of(self.spec.label, frame, numeric, categorical)

    def champion(self, rival: Subject) -> ChampionScores:
        """The champion on the same rows."""
        return self.scorer.champion(rival, self.rows("holdout"))


def _trained(pipeline: Pipeline, record: StageRecord) -> Subject:
    """The model that was trained last, verified."""
    found = open_files(pipeline.objects, pipeline.name, record.data_version)
    return Subject.own(pipeline, *found)


def _rival(state: PipelineState, model: str) -> Subject | None:
    """The champion, verified; None where there is none, or it is this model, or is recalled."""
    stage, entries = state.spec.release.to, read(state.store, state.name, state.commit)
    rival = sound_champion(state.store, state.commit, state.name, entries, stage)
    if rival in (None, model):
        return None
    release = load_release(state.store, state.objects, state.name, stage, state.commit)
    return Subject.certified(state.pipeline, release.model, release.manifest)


def _run_record(
    pipeline: Pipeline,
    run: str,
    commit: str,
    model: StageRecord,
    data: StageRecord,
    report: EvaluationReport,
) -> RunRecord:
    """What it takes to judge the model again: not always the spec that it was trained by."""
    return run_record(
        environment(pipeline.settings),
        pipeline=pipeline.name,
        session=model.attributes["session"],
        run=run,
        config=pipeline.spec,
        seed=pipeline.spec.training.seed,
        inputs=[run_input(model, commit), run_input(data, commit)],
        outputs={"model": report.model, "report": digest_of(report)},
        metrics={name: interval.value for name, interval in report.metrics.items()},
    )


def folder_size(folder: Path) -> int:
    """Bytes of all files of a model."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _champion_input(digest: str) -> InputVersion:
    return InputVersion(key="champion", partition=None, version=digest, commit=None)


def _result(
    published: Published,
    report: EvaluationReport,
    measured: Measured,
    shown: Sequence[Picture | Table],
    links: dict[str, Any],
) -> dg.MaterializeResult:
    said = report.recommendation
    return dg.MaterializeResult(
        metadata={
            **pictures(shown),
            "metrics": dg.MetadataValue.md(metrics_markdown(report)),
            **({"recommendation": said.reason} if said else {}),
            **links,
            **numbers({name: interval.value for name, interval in report.metrics.items()}),
            **numbers({"latency_ms": measured.latency_ms}),
            **record_metadata(published),
        },
        data_version=dg.DataVersion(published.record.data_version),
    )


def metrics_markdown(report: EvaluationReport) -> str:
    """Model, baselines and champion, side by side."""
    names = list(report.metrics)
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    cells = [f"{i.value:.4f} [{i.low:.4f}, {i.high:.4f}]" for i in report.metrics.values()]
    lines.append(f"| **model** | {' | '.join(cells)} |")
    others = dict(report.baselines)
    if report.champion and report.champion.comparable:
        others["champion"] = report.champion.metrics
    for name, values in others.items():
        cells = [f"{values[m]:.4f}" if m in values else "" for m in names]
        lines.append(f"| {plain_markdown(name)} | {' | '.join(cells)} |")
    return "\n".join(lines)
