"""The drift baseline of a release: its training data and its results, to compare later rows with.

It lies beside the report, in the same commit; the certificate of the decision holds its digest.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from ml_assets.assets.evaluation_report.drift_profile import Profile, make_profile
from ml_assets.assets.evaluation_report.metrics.metrics import judged
from ml_assets.assets.evaluation_report.rows import Holdout
from ml_assets.assets.training_set.window import part_rows, resolve_window, rows_to_part
from ml_assets.errors import StorageError, counted
from ml_assets.records.ledger.origin import Origin
from ml_assets.spec.base import Digest, Frozen, digest_of
from ml_assets.spec.drift import DriftSpec, in_order
from ml_assets.spec.pipeline import LabelSpec, PipelineSpec
from ml_assets.spec.records import StageRecord
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, PipelineState
from ml_assets.store.snapshots import CommitId, SnapshotStore


class PeriodLoss(Frozen):
    """The loss of one period's labelled rows."""

    period: str
    units: int
    """Rows; of a ranking, queries."""
    blocks: int
    """Rows of one block (a day) are not independent."""
    mean: float
    error: float
    """Standard error of the mean, over blocks."""


def period_loss(
    period: str, losses: NDArray[np.float64], blocks: NDArray[np.int64]
) -> PeriodLoss | None:
    """The mean loss and its error, over blocks (a ratio of sums, linearised: Cochran 1977, 6.4).

    Args:
        losses: [units].
        blocks: [units] the block of each. With a single one, the units are their own.

    Returns:
        None where fewer than two units have a label: nothing can be said.
    """
    if len(losses) < 2:
        return None
    _, place = np.unique(blocks, return_inverse=True)
    if place.max(initial=0) == 0:
        place = np.arange(len(losses))
    mean = float(losses.mean())
    sums = np.bincount(place, weights=losses - mean)
    many = len(sums)
    error = float(np.sqrt(many / (many - 1) * (sums**2).sum())) / len(losses)
    return PeriodLoss(period=period, units=len(losses), blocks=many, mean=mean, error=error)


BASELINE_FILE = "baseline.json"


class Baseline(Frozen):
    """Stored with the report on a model; its digest is in the certificate of the decision."""

    schema_version: Literal[1] = 1
    pipeline: str
    model: Digest
    data: Digest
    """The training set."""
    features: Profile
    """The profile of the training split, by period."""
    labels: Profile
    """The profile of its labels."""
    unlabelled: float
    """The highest share of rows without a label in any training period."""
    predictions: Profile
    """The profile of the predictions on the holdout, which it never saw, by period."""
    losses: tuple[PeriodLoss, ...] = Field(strict=False)
    """The losses of the holdout's periods."""

    @property
    def trained_on(self) -> tuple[str, str]:
        """First and last period of the training split."""
        periods = [one.period or "" for one in self.features.periods]
        return periods[0], periods[-1]


_PERIOD = "__period"
Commits = Mapping[str | None, CommitId]
"""Partition of feature_set -> where the training set read it."""


def make_baseline(
    state: PipelineState,
    data: StageRecord,
    model: str,
    predictions: np.ndarray,
) -> Baseline | None:
    """The baseline of a model; None for data without periods, or that was split otherwise.

    The periods of rows that are read whole are the slices that the spec's ``drift`` asks for.

    Args:
        data: the record of its training set.
        predictions: [rows, outputs] on the holdout, in the order of its rows.
    """
    spec = state.spec
    window = resolve_window(state, data.attributes["as_of"])
    commits = where_read(state, data)
    if window is None:
        if spec.drift is None or set(commits) != {None}:
            return None
        whole = whole_frame(state.pipeline, commits[None])
        parts = parted(whole, state.pipeline)
        train: Mapping[str | None, pl.DataFrame] = {**slices(parts["train"], spec)}
        held = labelled(parts["holdout"], spec.label)
        held = held.with_columns(slice_names(held, spec).alias(_PERIOD))
        periods_held = in_order(held[_PERIOD].unique().to_list())
        unlabelled = whole[spec.label.column].null_count() / max(len(whole), 1)
    else:
        if {k for keys in window.splits.values() for k in keys} != set(commits):
            return None
        columns = {*spec.features.numeric, *spec.features.categorical, spec.label.column}
        train = FramesOnDemand(
            window.splits["train"], lambda key: _scan(state.pipeline, commits, key).select(columns)
        )
        held = _holdout_rows(state.pipeline, commits, window.splits["holdout"])
        periods_held = window.splits["holdout"]
        column = spec.label.column
        unlabelled = max(f[column].null_count() / max(len(f), 1) for f in train.values())
    labels = FramesOnDemand(train, lambda key: label_columns(spec.label, train[key]).lazy())
    if len(held) != len(predictions):
        raise StorageError(
            f"{state.name}: the holdout has {counted(len(held), 'labelled row')} and the report"
            f" {len(predictions)}. Materialize training_set and what follows it again."
        )
    periods = held[_PERIOD].to_numpy()
    outputs = prediction_columns(predictions, spec.label)
    return Baseline(
        pipeline=state.name,
        model=model,
        data=data.attributes["digest"],
        features=make_profile(train, spec.features.numeric, spec.features.categorical),
        labels=_of_labels(labels, spec.label),
        unlabelled=unlabelled,
        predictions=make_profile(
            {key: outputs.filter(periods == key) for key in periods_held},
            outputs.columns,
            [],
        ),
        losses=period_losses(spec, held, predictions),
    )


def whole_frame(pipeline: Pipeline, commit: CommitId) -> pl.DataFrame:
    """All feature rows of a pipeline that reads them whole."""
    return pipeline.store.scan(commit, Address(pipeline.name, "feature_set").table).collect()


def parted(rows: pl.DataFrame, pipeline: Pipeline) -> dict[str, pl.DataFrame]:
    """The rows of each split of a table that is read whole, as its training set has them."""
    rows = rows_to_part(rows, pipeline)
    part = part_rows(rows, pipeline)
    return {name: rows.filter(part == name) for name in ("train", "holdout")}


def read_baseline(store: SnapshotStore, origin: Origin) -> Baseline | None:
    """The baseline that was stored with a release; None: an older version wrote none.

    Raises:
        StorageError: it is not the one that was certified.
    """
    expected = origin.report.attributes.get("baseline")
    if expected is None:
        return None
    pipeline = origin.report.key.split("/")[0]
    path = Address(pipeline, "evaluation_report").file(BASELINE_FILE)
    found = Baseline.model_validate_json(store.read_bytes(origin.commit, path))
    if digest_of(found) != expected or found.model != origin.model.data_version:
        raise StorageError(
            f"{path} at commit {origin.commit[:12]} is not the baseline of model"
            f" {origin.model.data_version[:12]}. Train and release again: ml-assets run {pipeline}"
            " --fresh"
        )
    return found


def where_read(state: PipelineState, data: StageRecord) -> Commits:
    """Return where each partition of a training set can still be read.

    That is the state's commit where it is the same there: house-keeping may have deleted the one
    that the training set itself was made at.
    """
    at, there = state.commit, state.partitions(state.address("feature_set"))
    versions = {key: record.data_version for key, record in there.items()}
    return {
        one.partition: at if versions.get(one.partition or "") == one.version else one.commit or at
        for one in data.inputs
    }


def prediction_columns(predictions: np.ndarray, label: LabelSpec) -> pl.DataFrame:
    """Predictions [rows, outputs] as one numeric column for each output."""
    if predictions.ndim == 1 or predictions.shape[1] == 1:
        return pl.DataFrame({"prediction": predictions.reshape(-1)})
    names = [f"prediction_{name}" for name in label.classes]
    return pl.DataFrame({name: predictions[:, n] for n, name in enumerate(names)})


def label_columns(label: LabelSpec, rows: pl.DataFrame) -> pl.DataFrame:
    """The labels that are there: words of a class, numbers of a number."""
    column = rows[label.column].drop_nulls()
    dtype = pl.Float64 if label.task in ("regression", "ranking") else pl.String
    return column.cast(dtype).alias(label.column).to_frame()


def period_losses(
    spec: PipelineSpec, rows: pl.DataFrame, predictions: np.ndarray
) -> tuple[PeriodLoss, ...]:
    """The mean loss of each period of labelled rows that bear their period (see ``with_period``).

    Args:
        predictions: [rows, outputs].
    """
    names = rows[_PERIOD].unique(maintain_order=True).to_list()
    holdout = Holdout.of(spec, rows, (names[0], names[-1]))
    told = judged(holdout.truth, predictions)
    losses, blocks = told.losses(), told.units(holdout.blocks)
    places = told.units(rows[_PERIOD].replace_strict(names, range(len(names))).to_numpy())
    found = [
        period_loss(name, losses[places == place], blocks[places == place])
        for place, name in enumerate(names)
    ]
    return tuple(one for one in found if one is not None)


def with_period(rows: pl.DataFrame, period: str) -> pl.DataFrame:
    """The rows with the period that they are of."""
    return rows.with_columns(pl.lit(period).alias(_PERIOD))


def labelled(rows: pl.DataFrame, label: LabelSpec) -> pl.DataFrame:
    """Rows with a label, those of a query side by side: as a training set has them."""
    kept = rows.filter(pl.col(label.column).is_not_null())
    return kept.sort(label.query, maintain_order=True) if label.query else kept


class FramesOnDemand(Mapping[str | None, pl.DataFrame]):
    """Period -> its rows, read each time that they are asked for: none are kept."""

    def __init__(
        self, keys: Iterable[str | None], read: Callable[[str | None], pl.LazyFrame]
    ) -> None:
        self._keys, self._read = tuple(keys), read

    def __getitem__(self, key: str | None) -> pl.DataFrame:
        return self._read(key).collect()

    def __iter__(self) -> Iterator[str | None]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _scan(pipeline: Pipeline, commits: Commits, key: str | None) -> pl.LazyFrame:
    """The rows of a period, with a label or without: so are those that come later."""
    return pipeline.store.scan(commits[key], Address(pipeline.name, "feature_set").at(key).table)


def _holdout_rows(pipeline: Pipeline, commits: Commits, keys: Sequence[str]) -> pl.DataFrame:
    told = [with_period(_scan(pipeline, commits, key).collect(), key) for key in keys]
    return labelled(pl.concat(told), pipeline.spec.label)


def _of_labels(frames: Mapping[str | None, pl.DataFrame], label: LabelSpec) -> Profile:
    numbers = label.task in ("regression", "ranking")
    name = [label.column]
    return make_profile(frames, name if numbers else [], [] if numbers else name)


_MONDAY = datetime(2001, 1, 1, tzinfo=UTC)
"""Slices are counted from here, so that those of a week begin on its first day."""
_FEW = 0.5
"""A share of the median slice: one with fewer rows says little and joins the one before."""


def slice_names(rows: pl.DataFrame, spec: PipelineSpec, first: int = 0) -> pl.Series:
    """[n] the slice that each row is of.

    Args:
        rows: of feature_set.
        first: how many rows come before, where slices are counted in rows.
    """
    drift = spec.drift
    if drift is None or not len(rows):
        return pl.Series([], dtype=pl.String)
    places = _places(rows, drift, spec.features.decision_at)
    known, counts = np.unique(places, return_counts=True)
    few = counts < _FEW * np.median(counts)
    heads = [n for n in range(len(known)) if not few[n]]
    heads[0] = 0  # the first slices join the first that is long enough
    owner = known[np.array(heads)[np.searchsorted(heads, np.arange(len(known)), side="right") - 1]]
    owners = owner[np.searchsorted(known, places)]
    if drift.every is not None:
        names = {place: _moment(int(place), drift.every) for place in np.unique(owners)}
    else:
        ends = np.searchsorted(owners, np.unique(owners), side="right")
        begins = [0, *ends[:-1]]
        names = {
            owners[begin]: f"rows {first + begin + 1}-{first + end}"
            for begin, end in zip(begins, ends, strict=True)
        }
    return pl.Series([names[one] for one in owners])


def slices(rows: pl.DataFrame, spec: PipelineSpec, first: int = 0) -> dict[str, pl.DataFrame]:
    """Slice -> its rows, oldest first."""
    names = slice_names(rows, spec, first)
    return {name: rows.filter(names == name) for name in in_order(names.unique().to_list())}


def whole_slices(rows: pl.DataFrame, spec: PipelineSpec, first: int) -> dict[str, pl.DataFrame]:
    """The slices of new rows that nothing will be added to: those by time have ended, those by
    number are full."""
    drift = spec.drift
    if drift is None:
        return {}
    if drift.every is None:
        size = drift.rows or 1
        return slices(rows.head(len(rows) // size * size), spec, first)
    now = int((datetime.now(UTC) - _MONDAY) // drift.every)
    places = _places(rows, drift, spec.features.decision_at)
    return slices(rows.filter(pl.Series(places < now, dtype=pl.Boolean)), spec, first)


def _places(rows: pl.DataFrame, drift: DriftSpec, decision_at: str) -> np.ndarray:
    """[n] the number of each row's slice."""
    if drift.every is None:
        return np.arange(len(rows)) // (drift.rows or 1)
    since = (rows[decision_at] - _MONDAY).dt.total_microseconds().to_numpy()
    return since // (drift.every // timedelta(microseconds=1))


def _moment(place: int, every: timedelta) -> str:
    begin = _MONDAY + place * every
    return f"{begin:%Y-%m-%d}" if every % timedelta(days=1) == timedelta(0) else f"{begin:%F %H:%M}"
