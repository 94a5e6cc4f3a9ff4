"""The records stored beside the data, from the receipt of a source to the ledger."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from ml_assets.spec.base import Digest, Frozen, unset
from ml_assets.spec.gates import Target
from ml_assets.spec.registered import Registered
from ml_assets.spec.split import HoldoutDraw, HoldoutRows
from ml_assets.spec.texts import TextSample

REPORT_FILE = "report.json"

Time = Annotated[AwareDatetime, Field(strict=False)]


class InputVersion(Frozen):
    """An exact version that a step was handed."""

    key: str
    """Asset key, parts joined by ``/``."""
    partition: str | None
    version: str
    """Data version: a digest of the content."""
    commit: str | None
    """Snapshot commit that it was read at; None for what lives in the object store."""


class StageRecord(Frozen):
    """One materialization of one (asset, partition); stored with its table in the same commit."""

    schema_version: Literal[1] = 1
    key: str
    partition: str | None
    run_key: Digest
    code_version: str
    data_version: str
    rows: int | None
    inputs: tuple[InputVersion, ...] = Field(strict=False)
    attributes: dict[str, Any] = Field(default_factory=dict)
    """What only this stage has: a receipt, a window, a session, a digest."""
    run: str
    """Dagster run id."""
    time: Time


class Interval(Frozen):
    """A value with its 95 % interval, by the block bootstrap of ``evaluation_report.bootstrap``."""

    value: float
    low: float
    high: float


class SliceMetrics(Frozen):
    column: str
    value: str
    rows: int
    metrics: dict[str, float]
    intervals: dict[str, Interval] = Field(default_factory=dict)
    """Metric -> its interval, of the metric that slices are compared by."""


class FeatureImportance(Frozen):
    """Describes how much worse a model does where one column is shuffled among the rows."""

    column: str
    loss_rise: Interval
    """Rise of the mean loss: zero where the model does without the column."""


class CalibrationBin(Frozen):
    """Rows of like predictions: their mean prediction and what was observed of them."""

    predicted: float
    observed: float
    rows: int


class Curve(Frozen):
    """A curve thinned to at most 200 points, for a picture."""

    x: tuple[float, ...] = Field(strict=False)
    y: tuple[float, ...] = Field(strict=False)


class ResidualBin(Frozen):
    """Rows of like predictions: the 10th, 50th and 90th percentile of (observed - predicted)."""

    predicted: float
    """Their mean prediction."""
    low: float
    median: float
    high: float
    rows: int


class Residuals(Frozen):
    """Says where a regression errs, in the label's unit, by deciles of the prediction."""

    label_mean: float
    label_std: float
    deciles: tuple[ResidualBin, ...] = Field(strict=False)


class DayOfRanking(Frozen):
    """The queries of one day and their mean NDCG."""

    day: str
    queries: int
    ndcg: float


class PositionGain(Frozen):
    """The mean gain (2^grade - 1) of what stands at one position of the ranking."""

    position: int
    gain: float
    ideal: float
    """What would stand there in the best order."""


class Ranking(Frozen):
    """Describes how the queries of the holdout were ranked."""

    at: int
    """Positions from the top that count in NDCG."""
    queries: int
    """Those with a relevant row: they are judged."""
    without_relevant: int
    """Those without one: no order of them is better than another, they are left out."""
    days: tuple[DayOfRanking, ...] = Field(strict=False)
    positions: tuple[PositionGain, ...] = Field(strict=False)


class Difference(Frozen):
    """A metric of the candidate minus the champion's, on the same rows and the same draws."""

    absolute: Interval
    relative: Interval | None
    """As a share of the champion's; None where that is zero."""


class Estimate(Frozen):
    """One thing that a gate holds to its bound."""

    about: str
    """As a sentence names it: ``origin JFK``."""
    rows: int
    interval: Interval | None
    """None where it cannot be known: all rows are of one day, say."""


class SeedSpread(Frozen):
    """Describes how much models differ that were trained alike, from other seeds."""

    spec: Digest
    """The digest of what was trained: family, features, training, all but the seed."""
    data: Digest
    """The training set that it was measured on."""
    seeds: tuple[int, ...] = Field(strict=False)
    loss: float
    """Standard deviation, over the models, of the mean loss on the holdout."""
    metrics: dict[str, float]
    """The same of each metric."""


class ChampionComparison(Frozen):
    """The candidate against the champion on the same rows."""

    champion: Digest
    comparable: bool
    reason: str
    """Why it is not comparable; empty where it is."""
    loss: str
    """What the loss is called; see ``LOSS_OF``."""
    loss_difference: Interval | None
    """The candidate's mean loss minus the champion's: below zero, the candidate is better."""
    metrics: dict[str, float]
    """The champion's own, on these rows."""
    differences: dict[str, Difference] = Field(default_factory=dict, exclude_if=unset)
    """Metric -> the difference, of the metrics that a gate compares."""
    seeds: SeedSpread | None = Field(default=None, exclude_if=unset)
    """The intervals above are widened by it; None: they are about these two models alone."""


class Recommendation(Frozen):
    """Says whether the model is worth its cost beside ``baseline``. It blocks nothing."""

    baseline: str
    min_effect: float
    difference: Interval
    """Mean loss of a row, the simple model's minus the model's: above zero, the model is better."""
    keep: bool
    reason: str
    """A sentence that says what to release, and why."""


class OriginReport(Frozen):
    """The spec on one of the holdouts that follow each other."""

    holdout: tuple[str, str] = Field(strict=False)
    """First and last partition; of rows that are read whole, first and last decision."""
    trained_on: tuple[str, str] = Field(strict=False)
    """The same of the rows that its model was trained on."""
    rows: int
    model: Digest
    metrics: dict[str, Interval]
    baselines: dict[str, dict[str, float]]


class OriginReports(Frozen):
    """The same spec on several holdouts, each judged by a model that saw nothing later."""

    judge: Literal["mean", "worst"]
    asked: int
    origins: tuple[OriginReport, ...] = Field(strict=False, min_length=1)
    """Oldest first; the last is the report's own model."""
    mean: dict[str, Interval]
    """Metric -> its mean over the origins, with Student's interval of their spread."""
    missing: str = ""
    """Why there are fewer than were asked for; empty where all are there."""


class EvaluationReport(Frozen):
    """The results of a model on the holdout. Latency, never the same twice, is elsewhere."""

    schema_version: Literal[1] = 1
    pipeline: str
    model: Digest
    data: Digest
    rows: int
    holdout: tuple[str, str] = Field(strict=False)
    """First and last partition, or moment; or two empty strings."""
    partial: tuple[str, ...] = Field(default=(), strict=False, exclude_if=unset)
    """What is said of partitions of the holdout that are not whole."""
    label_rate: tuple[float, ...] = Field(strict=False)
    metrics: dict[str, Interval]
    baselines: dict[str, dict[str, float]]
    sources: dict[str, str] = Field(default_factory=dict, exclude_if=unset)
    """Baseline that is declared in numbers, not scored -> where these come from."""
    champion: ChampionComparison | None
    slices: tuple[SliceMetrics, ...] = Field(strict=False)
    calibration: tuple[CalibrationBin, ...] = Field(strict=False)
    roc: Curve | None
    precision_recall: Curve | None
    confusion: dict[str, dict[str, int]] = Field(default_factory=dict, exclude_if=unset)
    """Several classes: true class -> predicted class -> rows, where there are any."""
    importance: tuple[FeatureImportance, ...] = Field(default=(), strict=False)
    """The importance of every feature, on a sample of the holdout."""
    residuals: Residuals | None = Field(default=None, exclude_if=unset)
    ranking: Ranking | None = Field(default=None, exclude_if=unset)
    size_bytes: int
    recommendation: Recommendation | None = None
    """None where the spec names no simple model."""
    estimates: dict[str, tuple[Estimate, ...]] = Field(default_factory=dict, exclude_if=unset)
    """Gate -> what it is about; each gate's intervals hold for all its estimates at once."""
    holdout_rows: Digest | None = Field(default=None, exclude_if=unset)
    """The digest of the keys of the holdout's rows."""
    holdout_draw: HoldoutDraw | None = Field(default=None, exclude_if=unset)
    origins: OriginReports | None = Field(default=None, exclude_if=unset)
    """None where the spec asks for the newest holdout alone."""
    samples: tuple[TextSample, ...] = Field(default=(), strict=False, exclude_if=unset)


class Change(Frozen):
    """One thing that is not as it was; an empty side: it was not there."""

    group: Literal["spec", "data", "metrics", "importance"]
    name: str
    before: str
    after: str


class ReleaseChanges(Frozen):
    """Holds what differs between a model and the one released before it."""

    since: Digest
    changes: tuple[Change, ...] = Field(strict=False)


class Measured(Frozen):
    """Holds what a machine measured while scoring; differs from run to run."""

    latency_ms: float
    rows_per_second: float
    latency_p99_ms: float | None = Field(default=None, exclude_if=unset)
    memory_mb: float | None = Field(default=None, exclude_if=unset)


class GateResult(Frozen):
    """The result of a gate."""

    name: str
    passed: bool
    value: float | None
    """What was held to the bound: the worse end of the interval, where that decides."""
    bound: float | None
    reason: str
    interval: Interval | None = Field(default=None, exclude_if=unset)
    """The interval of what was estimated."""


class Audited(Frozen):
    """The contract of one table that a model was trained on, as its audit ended."""

    key: str
    partition: str | None
    found: bool
    """Whether the record of exactly this version is there."""
    failed: tuple[str, ...] = Field(default=(), strict=False)
    """Critical expectations that were not met, or why that cannot be told."""
    warned: tuple[str, ...] = Field(default=(), strict=False)


class Evidence(Frozen):
    """Everything a decision is about, by digest: a decision is stale when one of these moved."""

    model: Digest
    report: Digest
    data: Digest
    code: str
    policy: Digest
    champion: Digest | None


class CanaryPeriod(Frozen):
    """The rows that a canary and the champion were compared on: partitions behind its holdout."""

    first: str
    last: str
    rows: int


class Ancestor(Frozen):
    """A model that was learned from, or that was made elsewhere, and the rows that it never saw."""

    model: Digest
    holdout: HoldoutRows | None
    """None: nobody here knows them, it was made elsewhere."""
    there_to: str | None = Field(default=None, exclude_if=unset)
    """Made elsewhere: the newest partition that was there when it came."""


class Decision(Frozen):
    """The decision whether a model may be released, and why.

    Of a model in canary, ``canary`` says which rows it is about; the evidence is then of those: its
    report, the digest of the rows, and the code that scored them.
    """

    schema_version: Literal[1] = 1
    pipeline: str
    evidence: Evidence
    gates: tuple[GateResult, ...] = Field(strict=False)
    passed: bool
    reason: str
    canary: CanaryPeriod | None = Field(default=None, exclude_if=unset)
    run: str
    time: Time
    holdout: HoldoutRows | None = Field(default=None, exclude_if=unset)
    behind: tuple[Ancestor, ...] = Field(default=(), strict=False, exclude_if=unset)
    """All whose knowledge the model may have, however many trainings ago."""


class LedgerEntry(Frozen):
    """One line of the ledger, chained to the one before by its digest."""

    schema_version: Literal[1] = 1
    seq: Annotated[int, Field(ge=1)]
    previous: Digest | None
    """SHA-256 of the bytes of the line before; None for the first."""
    kind: Literal["registration", "decision", "stage", "abort", "override", "recall", "lift"]
    """``abort``: it left staging or canary, by what its traffic showed or a person's word."""
    model: Digest
    decision: Decision | None = None
    stage: Target | None = None
    """``stage`` lines: where the model went, replacing whatever was there."""
    replaced: Digest | None = None
    canary: Literal["none"] | None = None
    because: Literal["rollback"] | None = Field(default=None, exclude_if=unset)
    """``stage`` lines: a person put the model back; else a decision or an override led here."""
    decided_by: Annotated[int, Field(ge=1)] | None = Field(default=None, exclude_if=unset)
    """``stage`` lines: the line of the decision, or of its override, that let the model through."""
    overrides: Annotated[int, Field(ge=1)] | None = Field(default=None, exclude_if=unset)
    """``override`` lines: the line of the decision that this one, and no other, is set against."""
    gates: tuple[str, ...] = Field(default=(), strict=False, exclude_if=unset)
    """``override`` lines: the gates that had failed."""
    registered: Registered | None = Field(default=None, exclude_if=unset)
    author: str
    reason: str
    run: str
    """Dagster run id; empty where a command wrote the line."""
    time: Time
