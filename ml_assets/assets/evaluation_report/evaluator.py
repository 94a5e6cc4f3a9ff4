"""Scores one holdout: with the model, its baselines and the champion."""

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from ml_assets.adapters.step import AssetStep
from ml_assets.assets.evaluation_report.baselines import (
    BASELINE_ROWS,
    Rows,
    Texts,
    score_baseline,
    score_rule,
    score_texts,
    spread_shards,
)
from ml_assets.assets.evaluation_report.build_report import Holdout, judge
from ml_assets.assets.evaluation_report.forecasts import forecast
from ml_assets.assets.evaluation_report.importance import importance, shuffle
from ml_assets.assets.evaluation_report.robustness import Perturbed, spoil
from ml_assets.assets.evaluation_report.scoring import Scored, Scorer, Subject
from ml_assets.assets.evaluation_report.seed_spread import Seeds
from ml_assets.assets.evaluation_report.suspect_labels import Scores, has_suspects, suspects
from ml_assets.assets.feature_set.feature_function import load_function
from ml_assets.assets.training_set.encoding import encode_rows
from ml_assets.assets.training_set.shards import (
    NotComparable,
    each_shard,
    load_schema,
    read_rows,
    read_tokens,
)
from ml_assets.assets.training_set.tokens import texts_of
from ml_assets.errors import StorageError, counted
from ml_assets.launch.launcher import Launcher
from ml_assets.records.ledger.chain import read
from ml_assets.records.load_release import held_manifest, held_weights, load_release
from ml_assets.records.recalls import sound_champion
from ml_assets.spec.forecasts import Forecast
from ml_assets.spec.gates import FunctionBaseline, GroupRateBaseline, ValueBaseline
from ml_assets.spec.records import (
    EvaluationReport,
    FeatureImportance,
)
from ml_assets.spec.texts import TextBaseline, TextSample, Tokens
from ml_assets.spec.training_program import Ref, ShardSchema, Split
from ml_assets.store.pipeline_context import Pipeline, PipelineState


class Evaluator:
    """Everything that is scored on one holdout, on the same rows in the same order."""

    def __init__(
        self,
        pipeline: Pipeline,
        context: AssetStep,
        launcher: Launcher,
        data: Ref,
    ) -> None:
        self.pipeline, self.spec = pipeline, pipeline.spec
        self.context, self.launcher = context, launcher
        self.scorer = Scorer(context, launcher, pipeline)
        self.data = data
        self.schema: ShardSchema = load_schema(data)

    def rows(self, split: Split, schema: ShardSchema | None = None) -> pl.DataFrame:
        """The rows of a split before encoding.

        Args:
            schema: with fewer shards than the set's own.
        """
        schema = schema or self.schema
        self._bring(split, schema)
        return read_rows(self.data, schema, split)

    def _shards(self, split: Split) -> Iterator[pl.DataFrame]:
        """The same a shard at a time."""
        self._bring(split, self.schema)
        return each_shard(self.data, self.schema, split)

    def _bring(self, split: Split, schema: ShardSchema) -> None:
        self.pipeline.objects.bring(self.data, [one.digest for one in schema.splits[split]])

    def judge(
        self, model: Subject, span: tuple[str, ...], rival: Subject | None, seeds: Seeds
    ) -> tuple[EvaluationReport, Scored]:
        """The model on its holdout, the baselines and the champion beside it."""
        holdout = Holdout.of(self.spec, self.rows("holdout"), (span[0], span[-1]))
        with ThreadPoolExecutor(1) as beside:  # the scores come from a process of their own
            baselines = beside.submit(self.baselines)
            scored, importance, perturbed = self.model(model, holdout)
            champion = self.scorer.champion(rival, self.rows("holdout")) if rival else None
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
        return report.model_copy(update={"samples": self.samples(scored)}), scored

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
        scored = self.scorer.score(model, pl.concat(plain, how="vertical_relaxed"))
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
        subject = Subject.own(self.pipeline, model, manifest)
        scored = self.scorer.score(subject, self.rows("holdout"))
        if isinstance(scored, NotComparable):
            raise StorageError(f"{self.pipeline.name}: the holdout does not fit: {scored.reason}")
        return scored.predictions

    def deviations(self) -> dict[str, float]:
        """Numeric column -> its standard deviation in the training split."""
        return {column.name: column.std for column in self.schema.preprocessing.numeric}

    def baselines(self) -> dict[str, np.ndarray]:
        """Name -> predictions on the holdout of each baseline that predicts; then forgotten."""
        if tokens := self.schema.preprocessing.tokens:
            return self._text_baselines(tokens)
        asked = self.spec.evaluation.baselines
        read = any(not isinstance(one, ValueBaseline | TextBaseline | Forecast) for one in asked)
        both = self._both() if read else None
        found: dict[str, np.ndarray] = {}
        for baseline in asked:
            if isinstance(baseline, ValueBaseline | TextBaseline):
                continue
            self.context.log.info(f"baseline {baseline.name}")
            if isinstance(baseline, Forecast):  # of a series every value counts
                train, validation = self._shards("train"), self._shards("validation")
                holdout = self.rows("holdout")
                found[baseline.name] = forecast(baseline, self.spec, train, validation, holdout)
                continue
            assert both is not None
            if isinstance(baseline, FunctionBaseline):
                rule = load_function(self.pipeline.folder, baseline.function, self.pipeline.name)
                found[baseline.name] = score_rule(baseline, rule, *both, self.spec.label)
            else:
                found[baseline.name] = score_baseline(baseline, *both, self.spec.label)
        return found

    def _both(self) -> tuple[Rows, Rows]:
        """The rows that baselines are fitted on, and the holdout."""
        train = self.schema.splits["train"]
        few = spread_shards(train, BASELINE_ROWS)
        if few != train:
            rows, all_rows = (sum(one.rows for one in shards) for shards in (few, train))
            self.context.log.info(
                f"baselines are fitted on {rows:,} of {counted(all_rows, 'row')}: {len(few)} of"
                f" {counted(len(train), 'shard')}, evenly spaced"
            )
        schema = self.schema.model_copy(update={"splits": {**self.schema.splits, "train": few}})
        asked = self.spec.evaluation.baselines
        groups = {name for one in asked if isinstance(one, GroupRateBaseline) for name in one.by}
        columns = None if any(isinstance(one, FunctionBaseline) for one in asked) else groups
        return self._side("train", schema, columns), self._side("holdout", schema)

    def _text_baselines(self, tokens: Tokens) -> dict[str, np.ndarray]:
        """The same of texts."""
        train, holdout = (
            Texts(self.rows(split), *read_tokens(self.data, self.schema, split))
            for split in ("train", "holdout")
        )
        asked = [b for b in self.spec.evaluation.baselines if isinstance(b, TextBaseline)]
        return {one.name: score_texts(one, train, holdout, tokens) for one in asked}

    def samples(self, scored: Scored) -> tuple[TextSample, ...]:
        """Return what a language model goes on with, where the holdout's first texts end."""
        tokens = self.schema.preprocessing.tokens
        ids = scored.result.samples
        if tokens is None or not ids:
            return ()
        halves = [(row[: len(row) // 2], row[len(row) // 2 :]) for row in ids]
        given, drawn = (texts_of(part, tokens) for part in zip(*halves, strict=True))
        return tuple(TextSample(given=a, drawn=b) for a, b in zip(given, drawn, strict=True))

    def _side(
        self, split: Split, schema: ShardSchema, columns: Collection[str] | None = None
    ) -> Rows:
        """Read a shard after the other: of all rows only these columns are kept."""
        self._bring(split, schema)
        kept = None if columns is None else {*columns, self.spec.label.column}
        shards = partial(each_shard, self.data, schema, split)
        frame = pl.concat(
            shard.select(n for n in shard.columns if kept is None or n in kept)
            for shard in shards()
        )
        read = self.schema.preprocessing
        return Rows.of(
            self.spec.label, frame, lambda: (encode_rows(shard, read) for shard in shards())
        )


def rival_of(state: PipelineState, model: str) -> Subject | None:
    """The champion, verified; None where there is none, or it is this model, or is recalled."""
    stage, entries = state.spec.release.to, read(state.store, state.name, state.commit)
    rival = sound_champion(state.store, state.commit, state.name, entries, stage)
    if rival in (None, model):
        return None
    release = load_release(state.store, state.objects, state.name, stage, state.commit)
    return Subject.certified(state.pipeline, release.model, release.manifest)


def folder_size(folder: Path) -> int:
    """Bytes of all files of a model."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
