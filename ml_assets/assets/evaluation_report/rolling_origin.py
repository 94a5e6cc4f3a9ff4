"""Rolling origin: the same spec, trained and judged on successive holdouts.

An earlier holdout is judged by a model of its own that saw nothing later: a session of the training
program like any other, resumed and retried alike. Its model is compared and then discarded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from ml_assets.adapters.step import AssetStep
from ml_assets.assets.evaluation_report.build_report import baseline_metrics
from ml_assets.assets.evaluation_report.evaluator import Evaluator
from ml_assets.assets.evaluation_report.metrics.metrics import evaluate
from ml_assets.assets.evaluation_report.rows import Holdout, first_and_last
from ml_assets.assets.trained_model.training_job import remember_session, teller
from ml_assets.assets.training_set.encoded_set import encode_splits
from ml_assets.assets.training_set.read_split import SplitRows
from ml_assets.assets.training_set.window import (
    feature_order,
    keep_apart,
    read_earlier_splits,
    read_splits,
    resolve_window,
    window_inputs,
)
from ml_assets.errors import WindowError, counted
from ml_assets.launch.launcher import Launcher, TrainJob
from ml_assets.launch.session_name import train_session
from ml_assets.spec.evaluation import OriginsSpec
from ml_assets.spec.gates import ValueBaseline
from ml_assets.spec.records import (
    EvaluationReport,
    InputVersion,
    Interval,
    OriginReport,
    OriginReports,
    StageRecord,
)
from ml_assets.spec.split import WindowSplit
from ml_assets.spec.training_program import Split, TrainResult
from ml_assets.store.pipeline_context import PipelineState


@dataclass(frozen=True)
class EarlierRows:
    """The rows that a model of an earlier time is trained and judged on."""

    splits: dict[Split, SplitRows]
    holdout: tuple[str, str]
    trained_on: tuple[str, str]
    inputs: tuple[InputVersion, ...]


@dataclass(frozen=True)
class RolledOrigins:
    """Holds what came of all origins, and what it cost."""

    reports: OriginReports
    inputs: tuple[InputVersion, ...]
    """Versions of feature_set that the earlier models were trained and judged on."""
    cost: dict[str, float]
    """``trainings`` and the ``seconds`` that they took, those that were made before included."""


@dataclass(frozen=True)
class RollingOrigin:
    """Trains and judges a spec as of earlier times.

    Args:
        state: what was published when the evaluation began.
        data: the record of the training set, whose holdout is the newest.
    """

    state: PipelineState
    context: AssetStep
    launcher: Launcher
    data: StageRecord

    def roll(self, asked: OriginsSpec, newest: EvaluationReport) -> RolledOrigins:
        """The origins that were asked for, as far back as the data goes.

        Raises:
            TrainingFailed: a model of an earlier time could not be trained or scored.
            Recalled: its rows were made from bad data.
        """
        found: list[OriginReport] = []
        inputs: dict[InputVersion, None] = {}
        seconds, missing = 0.0, ""
        try:
            for rows in self._earlier(asked.count):
                report, result = self._judged(rows)
                found.append(report)
                inputs.update(dict.fromkeys(rows.inputs))
                seconds += result.seconds
        except WindowError as error:
            missing = (
                f"{len(found) + 1} of the {counted(asked.count, 'origin')} asked for could be"
                f" judged: {str(error).removesuffix('.')}"
            )
            self.context.log.warning(missing)
        origins = [*reversed(found), self._newest(newest)]
        reports = OriginReports(
            judge=asked.judge,
            asked=asked.count,
            origins=tuple(origins),
            mean=mean_over([origin.metrics for origin in origins]),
            missing=missing,
        )
        cost = {"trainings": len(found), "seconds": seconds}
        return RolledOrigins(reports, tuple(inputs), cost)

    def _earlier(self, count: int) -> Iterator[EarlierRows]:
        """The rows of each origin but the newest, the latest first.

        Raises:
            WindowError: there is no such window, or a split of it has no rows.
        """
        for back in range(1, count):
            self.context.log.info(
                f"origin {count - back} of {count}: as of {counted(back, 'holdout')} ago"
            )
            yield earlier_rows(self.context, self.state, self.data.attributes["as_of"], back)

    def _judged(self, rows: EarlierRows) -> tuple[OriginReport, TrainResult]:
        """A model trained on earlier rows, on the holdout behind them, beside the baselines."""
        pipeline, spec = self.state.pipeline, self.state.spec
        data = encode_splits(self.state, rows.splits).ref
        data = pipeline.objects.own(data, "shards", pipeline.name, whole=False)
        cluster, code = spec.cluster, pipeline.network
        job = TrainJob(
            spec.name,
            spec.model,
            spec.training,
            data,
            cluster=cluster,
            code=code,
            evidence=bool(pipeline.store.keys.trusted),
        )
        remember_session(self.context.instance, self.context.run.run_id, train_session(job))
        result = self.launcher.train(job, teller(self.context.log))
        evaluator = Evaluator(pipeline, self.context, self.launcher, data)
        holdout = Holdout.of(spec, evaluator.rows("holdout"), rows.holdout)
        predictions = evaluator.predictions(result.model)
        samples, seed = spec.evaluation.bootstrap_samples, spec.training.seed
        metrics = evaluate(holdout.truth, predictions, holdout.blocks, samples, seed)
        declared = [one for one in spec.evaluation.baselines if isinstance(one, ValueBaseline)]
        report = OriginReport(
            holdout=rows.holdout,
            trained_on=rows.trained_on,
            rows=len(predictions),
            model=result.model.digest,
            metrics={str(name): interval for name, interval in metrics.items()},
            baselines=baseline_metrics(holdout.truth, evaluator.baselines(), declared),
        )
        return report, result

    def _newest(self, report: EvaluationReport) -> OriginReport:
        """The model of the report itself."""
        window = resolve_window(self.state, self.data.attributes["as_of"])
        if window is not None:
            train = window.train[0], window.train[-1]
        else:
            at = self.state.spec.features.decision_at
            train = first_and_last(read_splits(self.state, None)["train"].column(at))
        return OriginReport(
            holdout=report.holdout,
            trained_on=train,
            rows=report.rows,
            model=report.model,
            metrics=report.metrics,
            baselines=report.baselines,
        )


def earlier_rows(
    context: AssetStep, state: PipelineState, as_of: str | None, back: int
) -> EarlierRows:
    """The rows of each split as they were to be parted ``back`` holdouts before ``as_of``.

    Raises:
        WindowError: there is no such window, or a split of it has no rows.
        Recalled: some of them were made from bad data.
    """
    split = state.spec.split
    if not isinstance(split, WindowSplit):
        splits = read_earlier_splits(state, back)
        at = state.spec.features.decision_at
        holdout, train = splits["holdout"].column(at), splits["train"].column(at)
        spans = first_and_last(holdout), first_and_last(train)
        return EarlierRows(splits, *spans, window_inputs(state, None))
    order = feature_order(state.pipeline)
    place = order.index(as_of or order[-1]) - back * split.holdout
    if place < 0:
        raise WindowError(
            f"The feature set begins at {order[0]}, and a holdout that ends"
            f" {counted(back * split.holdout, 'partition')} before {as_of} would come before it:"
            " lower evaluation.origins.count, or publish earlier partitions."
        )
    window = resolve_window(state, order[place])
    if window is None:
        raise ValueError("a split by partitions has a window")
    splits = keep_apart(context.log, state.pipeline, read_splits(state, window))
    holdout, train = (window.holdout[0], window.as_of), (window.train[0], window.train[-1])
    return EarlierRows(splits, holdout, train, window_inputs(state, window))


def mean_over(origins: Sequence[dict[str, Interval]]) -> dict[str, Interval]:
    """Metric -> its mean over the origins, of those that all have, and Student's 95% interval.

    The origins are the sample: the interval is of the mean over holdouts like these. Of fewer than
    two nothing is known of their spread.
    """
    from scipy.stats import t

    count = len(origins)
    if count < 2:
        return {}
    times = float(t.isf(0.025, count - 1)) / sqrt(count)
    found: dict[str, Interval] = {}
    for name in origins[0]:
        if all(name in metrics for metrics in origins):
            values = np.array([metrics[name].value for metrics in origins])
            mean, wide = float(values.mean()), times * float(values.std(ddof=1))
            found[name] = Interval(value=mean, low=mean - wide, high=mean + wide)
    return found
