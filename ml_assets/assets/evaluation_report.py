"""evaluation_report: the exported weights judged on the holdout, beside baselines and champion."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import polars as pl

from ml_assets.assets.graph import PipelineGraph
from ml_assets.assets.inputs import require_record, resolve_base
from ml_assets.assets.last_release import REPORT_FILE, changes_since
from ml_assets.assets.metadata import model_links, numbers, pictures, record_metadata
from ml_assets.assets.publish import Draft, Published, Work, input_version
from ml_assets.assets.scoring import Scored, score
from ml_assets.assets.trained_model import data_ref
from ml_assets.dataset.encoding import encode_rows
from ml_assets.dataset.shards import NotComparable, load_schema, write_scoring_set
from ml_assets.errors import StorageError
from ml_assets.evaluation.baselines import Rows, score_baseline
from ml_assets.evaluation.importance import importance, shuffle
from ml_assets.evaluation.judge import ChampionScores, Holdout, judge
from ml_assets.launch.launcher import Launcher
from ml_assets.pictures.evaluation import evaluation_pictures
from ml_assets.pictures.picture import Picture, Table
from ml_assets.pictures.release import changes_table
from ml_assets.registry.ledger import champion, read
from ml_assets.registry.recalls import recalled
from ml_assets.registry.run_history import RUN_FILE
from ml_assets.registry.run_record import (
    RunRecord,
    environment,
    record_bytes,
    run_input,
    run_record,
)
from ml_assets.resources.launcher import LauncherResource
from ml_assets.resources.objects import ObjectsResource
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.spec.canonical import canonical_json, digest_of
from ml_assets.spec.program import ModelManifest, Ref, ShardSchema, Split
from ml_assets.spec.recalls import Recall
from ml_assets.spec.records import (
    EvaluationReport,
    FeatureImportance,
    InputVersion,
    Measured,
    StageRecord,
)
from ml_assets.storage.layout import Address
from ml_assets.storage.objects import LocalObjects

STAGE = "evaluation_report"


def evaluation_report(graph: PipelineGraph) -> dg.AssetsDefinition:
    """The evaluation_report asset of a pipeline."""
    code_version = graph.code_version(STAGE)

    @graph.asset(
        STAGE,
        description="Metrics with intervals on rows the model never saw, beside the baselines and"
        " the champion on the same rows. The gates are checks on this asset.",
        kinds={"numpy", "scikitlearn"},
        deps=[graph.key("trained_model"), graph.key("training_set")],
    )
    def materialize(
        context: dg.AssetExecutionContext,
        snapshots: SnapshotsResource,
        objects: ObjectsResource,
        launcher: LauncherResource,
    ) -> dg.MaterializeResult:
        store = snapshots.store()
        base = resolve_base(context, store)
        model = require_record(store, base, Address(graph.name, "trained_model"))
        data = require_record(store, base, Address(graph.name, "training_set"))
        bench = Bench(graph, context, objects.store(), launcher.launcher(), data_ref(data))
        model_ref = Ref.model_validate(model.attributes["model"])
        rival = champion(read(store, graph.name, base), graph.spec.release.to)
        if rival == model_ref.digest:
            rival = None
        bad = recalled(store, base, graph.name, rival) if rival else None
        report, measured = bench.judge(model_ref, tuple(data.attributes["holdout"]), rival, bad)
        since = changes_since(context.log, graph, store, base, report)
        seen = (_champion_input(rival),) if rival else ()
        inputs = (input_version(model, base), input_version(data, base))
        work = Work(Address(graph.name, STAGE), code_version, inputs, context.run_id, seen=seen)
        with Draft(store, work, base, rows=report.rows) as draft:
            draft.text(REPORT_FILE, canonical_json(report))
            draft.text(
                RUN_FILE,
                record_bytes(_run_record(graph, context.run_id, base, model, data, report)),
            )
            published = draft.publish(
                attributes={
                    "measured": measured.model_dump(),
                    "metrics": {name: i.value for name, i in report.metrics.items()},
                    "changes": since.model_dump() if since else None,
                },
                data_version=digest_of(report),
            )
        shown = [*evaluation_pictures(report, graph.spec), changes_table(since)]
        return _result(published, report, measured, shown, model_links(graph.name, model))

    return materialize


class Bench:
    """Everything that is scored on one holdout, on the same rows in the same order."""

    def __init__(
        self,
        graph: PipelineGraph,
        context: dg.AssetExecutionContext,
        objects: LocalObjects,
        launcher: Launcher,
        data: Ref,
    ) -> None:
        self.graph, self.spec = graph, graph.spec
        self.context, self.objects, self.launcher = context, objects, launcher
        self.data = data
        self.schema: ShardSchema = load_schema(data)

    def rows(self, split: Split) -> pl.DataFrame:
        """The rows of a split before encoding."""
        return pl.read_parquet(Path(self.data.uri) / self.schema.rows[split].path)

    def judge(
        self, model: Ref, span: tuple[str, ...], rival: str | None, bad: Recall | None = None
    ) -> tuple[EvaluationReport, Measured]:
        """The model on its holdout, the baselines and the champion (its digest) beside it.

        Args:
            bad: the recall that reached the champion, which is then not loaded.
        """
        holdout = Holdout.of(self.spec, self.rows("holdout"), (span[0], span[-1]))
        with ThreadPoolExecutor(1) as beside:  # the scores come from a process of their own
            baselines = beside.submit(self.baselines)
            scored, importance = self.model(model, holdout)
            champion = self.champion(rival, bad) if rival else None
            report = judge(
                self.spec,
                model=model.digest,
                data=self.data.digest,
                holdout=holdout,
                predictions=scored.predictions,
                baselines=baselines.result(),
                champion=champion,
                size_bytes=folder_size(Path(model.uri)),
                importance=importance,
            )
        return report, scored.measured()

    def model(self, model: Ref, holdout: Holdout) -> tuple[Scored, tuple[FeatureImportance, ...]]:
        """The holdout's scores, and how much the model needs each feature.

        The rows and their shuffled copies are scored at once: the program starts only one time.
        """
        rows = self.rows("holdout")
        shuffled = shuffle(self.spec, rows)
        both = pl.concat([rows.select(shuffled.stacked.columns), shuffled.stacked])
        scored = self.score(model, both)
        if isinstance(scored, NotComparable):  # the model's own features are in its own holdout
            raise StorageError(f"{self.graph.name}: the holdout does not fit: {scored.reason}")
        own, copies = np.split(scored.predictions, [len(rows)])
        return Scored(own, scored.result), importance(self.spec, holdout, shuffled, copies)

    def score(self, model: Ref, rows: pl.DataFrame) -> Scored | NotComparable:
        """A model on rows of this holdout, encoded with the model's own preprocessing."""
        manifest = ModelManifest.model_validate_json((Path(model.uri) / "model.json").read_bytes())
        shards = self.objects.folder("shards", self.graph.name)
        data = write_scoring_set(rows, manifest, self.spec.label, shards)
        if isinstance(data, NotComparable):
            return data
        threads = self.spec.training.threads
        return score(self.context, self.launcher, self.graph.name, model, data, "holdout", threads)

    def baselines(self) -> dict[str, np.ndarray]:
        """Baseline name -> predictions on the holdout; each is fitted and forgotten."""
        sides: dict[Split, Rows] = {}
        for split in ("train", "holdout"):
            frame = self.rows(split)
            numeric, categorical = encode_rows(frame, self.schema.preprocessing)
            sides[split] = Rows.of(self.spec.label, frame, numeric, categorical)
        found: dict[str, np.ndarray] = {}
        for baseline in self.spec.evaluation.baselines:
            self.context.log.info(f"baseline {baseline.name}")
            found[baseline.name] = score_baseline(
                baseline, sides["train"], sides["holdout"], self.spec.label
            )
        return found

    def champion(self, digest: str, bad: Recall | None = None) -> ChampionScores:
        """The champion on the same rows."""
        if bad:
            return ChampionScores(digest, None, f"it is recalled: {bad.reason} (recall {bad.id})")
        folder = self.objects.folder("models", digest)
        scored = self.score(Ref(uri=str(folder), digest=digest), self.rows("holdout"))
        if isinstance(scored, NotComparable):
            return ChampionScores(digest, None, scored.reason)
        return ChampionScores(digest, scored.predictions, "")


def _run_record(
    graph: PipelineGraph,
    run: str,
    commit: str,
    model: StageRecord,
    data: StageRecord,
    report: EvaluationReport,
) -> RunRecord:
    """What it takes to judge the model again: not always the spec that it was trained by."""
    return run_record(
        environment(),
        pipeline=graph.name,
        session=model.attributes["session"],
        run=run,
        config=graph.spec,
        seed=graph.spec.training.seed,
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
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)
