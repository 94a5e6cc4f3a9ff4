"""Chooses the periods to compare with a release: the newest ones after its training rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ml_assets.assets.drift_report.domain_classifier import ROWS, evenly
from ml_assets.assets.evaluation_report.drift_baseline import (
    Baseline,
    parted,
    read_baseline,
    slices,
    where_read,
    whole_frame,
    whole_slices,
)
from ml_assets.assets.training_set.window import feature_order
from ml_assets.errors import counted
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.inputs import require_record
from ml_assets.graph.publish import Work, input_version
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.origin import Origin, find_origin
from ml_assets.records.ledger.stages import champion
from ml_assets.records.recalls import require_sound
from ml_assets.spec.drift import DriftSpec, in_order
from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.spec.stages import DRIFT_STAGE
from ml_assets.store.layout import Address, published_partitions
from ml_assets.store.pipeline_context import Pipeline, PipelineState
from ml_assets.store.snapshots import CommitId

LATE_LABELS = 0.05
"""A period whose share of rows without a label is that much above any training period's waits."""


@dataclass(frozen=True)
class DriftWindows:
    """A release, and the published periods that are judged against it."""

    release: Origin
    baseline: Baseline
    periods: tuple[str, ...]
    """Oldest first: the newest behind the training split. At least one is behind the holdout, or
    has changed since: neither training nor judging has seen it as it is."""
    matured: tuple[str, ...]
    """The newest unseen ones whose labels are there."""
    waiting: str
    """Why the newest period is not among them; empty where it is."""
    seasons: Mapping[str, tuple[StageRecord, ...]]
    """Period -> the same season of before, where all of it is published."""
    commit: CommitId
    records: Mapping[str, StageRecord]
    """Period -> the record of feature_set that holds its rows."""
    cut: Mapping[str, pl.DataFrame] | None = None
    """Period -> its rows, where they are slices of a table that is read whole."""
    changed: frozenset[str] = frozenset()
    """Periods that the release was judged on and whose content has changed since."""

    @property
    def all(self) -> tuple[str, ...]:
        """Every period that is judged for anything, oldest first, each once."""
        return tuple(in_order({*self.matured, *self.periods}))

    @property
    def newest(self) -> str:
        return self.periods[-1]

    def work(self, pipeline: Pipeline, run: str) -> Work:
        """Return what a report on them is made from."""
        seasons = {
            record.partition: record for records in self.seasons.values() for record in records
        }
        judged = {self.records[one].partition: self.records[one] for one in self.all}
        inputs = (
            input_version(self.release.model, self.release.commit),
            *(input_version(record, self.commit) for record in judged.values()),
        )
        others = [r for key, r in sorted(seasons.items()) if r not in judged.values()]
        season = tuple(input_version(record, self.commit) for record in others)
        labelled = InputVersion(
            key="matured",
            partition=None,
            version=",".join(self.matured if self.cut is None else (*self.matured, *self.periods)),
            commit=None,
        )
        address = Address(pipeline.name, DRIFT_STAGE)
        return Work(
            address, code_version_of(pipeline, DRIFT_STAGE), (*inputs, *season, labelled), run
        )

    def rows(self, pipeline: Pipeline, period: str) -> pl.DataFrame:
        """The feature rows of a period.

        Raises:
            Recalled: it was made from bad data.
        """
        if self.cut is not None:
            require_sound(pipeline.store, self.commit, self.records[period])
            return self.cut[period]
        return self._partition(pipeline, self.records[period])

    def _partition(self, pipeline: Pipeline, record: StageRecord) -> pl.DataFrame:
        require_sound(pipeline.store, self.commit, record)
        address = Address(pipeline.name, "feature_set", partition=record.partition)
        return pipeline.store.scan(self.commit, address.table).collect()

    def season(self, pipeline: Pipeline, period: str) -> pl.DataFrame | None:
        """The rows of the same season of before; None where there is no such history."""
        records = self.seasons.get(period)
        if not records:
            return None
        frames = [self._partition(pipeline, one) for one in records]
        return pl.concat(frames, how="vertical_relaxed")

    def training_samples(self, pipeline: Pipeline) -> dict[str | None, pl.DataFrame]:
        """Read some rows of each period of the training split, as they were when it was trained."""
        store = pipeline.store
        released = pipeline.at(self.release.commit)
        data = require_record(released, pipeline.address("training_set"))
        commits = where_read(released, data)
        features = Address(pipeline.name, "feature_set")
        if self.cut is not None:
            train = parted(whole_frame(pipeline, commits[None]), pipeline)["train"]
            names = self.baseline.features.names
            return {
                period: evenly(rows.select(names), ROWS)
                for period, rows in slices(train, pipeline.spec).items()
            }
        found: dict[str | None, pl.DataFrame] = {}
        for one in self.baseline.features.periods:
            table = store.scan(commits[one.period], features.at(one.period).table).collect()
            found[one.period] = evenly(table.select(self.baseline.features.names), ROWS)
        return found


def held_against(state: PipelineState) -> tuple[Origin, Baseline] | str:
    """The release that new periods are held against; else why there is none, in words.

    Raises:
        StorageError: the baseline is not the one that was certified.
    """
    stage = state.spec.release.to
    model = champion(read(state.store, state.name, state.commit), stage)
    if state.spec.drift is None or model is None:
        return f"nothing is in {stage} yet, so no drift is looked for"
    origin = find_origin(state.store, state.name, model)
    baseline = read_baseline(state.store, origin) if origin else None
    if origin is None or baseline is None:
        return (
            f"model {model[:12]} was released without a baseline, so no drift is looked for; the"
            " next release has one"
        )
    return origin, baseline


def drift_windows(state: PipelineState) -> DriftWindows | str:
    """Return what can be judged at a commit; else why nothing can, in words.

    Raises:
        StorageError: the baseline is not the one that was certified.
    """
    spec, found = state.spec.drift, held_against(state)
    if spec is None or isinstance(found, str):
        return str(found)
    origin, baseline = found
    data = require_record(state.at(origin.commit), state.address("training_set"))
    if spec.every or spec.rows:
        return _slice_windows(state, spec, origin, baseline, data)
    order = feature_order(state.pipeline)
    published = published_partitions(state.store, state.commit, Address(state.name, "feature_set"))
    behind = [key for key in published if key > baseline.trained_on[1]]
    periods = behind[-spec.windows :]
    changed = _changed(state.at(origin.commit), published) & {*periods}
    unseen = [key for key in behind if key > data.attributes["as_of"] or key in changed]
    if not unseen:
        return (
            f"no period has come since {data.attributes['as_of']}, the last that model"
            f" {origin.model.data_version[:12]} was judged on, and none up to it has changed"
        )
    without = {key: unlabelled(published[key]) for key in unseen}
    matured = matured_periods(without, baseline, spec)
    return DriftWindows(
        release=origin,
        baseline=baseline,
        periods=tuple(periods),
        matured=tuple(matured[-spec.windows :]),
        waiting=_waiting(without, matured, spec),
        seasons=_seasons(periods, published, order, spec),
        commit=state.commit,
        records=published,
        changed=frozenset(changed),
    )


def _changed(released: PipelineState, published: Mapping[str, StageRecord]) -> set[str]:
    """Periods whose content is another one than when the model was released, by the same code."""
    then = released.partitions(released.address("feature_set"))
    return {
        key
        for key, record in published.items()
        if key in then
        and record.data_version != then[key].data_version
        and record.code_version == then[key].code_version
    }


def _slice_windows(
    state: PipelineState, spec: DriftSpec, origin: Origin, baseline: Baseline, data: StageRecord
) -> DriftWindows | str:
    """The slices of the rows whose keys the release has not seen."""
    released, declared = state.at(origin.commit), state.spec
    record = require_record(state, state.address("feature_set"))
    seen = whole_frame(state.pipeline, where_read(released, data)[None])
    rows = whole_frame(state.pipeline, state.commit)
    new = rows.join(seen, on=declared.features.key, how="anti", maintain_order="left")
    cut = whole_slices(new, declared, len(seen))
    if not cut:
        came = f"{counted(len(new), 'row')} came" if len(new) else "no row has come"
        each = f" they are not a whole period of {spec.size} yet" if len(new) else ""
        return f"{came} since model {baseline.model[:12]} was trained{':' if each else ''}{each}"
    label = declared.label.column
    without = {name: part[label].null_count() / len(part) for name, part in cut.items()}
    matured = matured_periods(without, baseline, spec)
    return DriftWindows(
        release=origin,
        baseline=baseline,
        periods=tuple(cut)[-spec.windows :],
        matured=tuple(matured[-spec.windows :]),
        waiting=_waiting(without, matured, spec),
        seasons={},
        commit=state.commit,
        records=dict.fromkeys(cut, record),
        cut=cut,
    )


def matured_periods(without: Mapping[str, float], baseline: Baseline, spec: DriftSpec) -> list[str]:
    """Periods whose labels are as complete as those that the model was trained on.

    Args:
        without: unseen period, oldest first -> the share of its rows without a label.
    """
    old_enough = list(without)[: max(0, len(without) - spec.label_lag)]
    most = baseline.unlabelled + LATE_LABELS
    return [key for key in old_enough if without[key] <= most]


def _waiting(without: Mapping[str, float], matured: Sequence[str], spec: DriftSpec) -> str:
    newest = list(without)[-1]
    if newest in matured:
        return ""
    share = without[newest]
    lag = (
        f", and {counted(spec.label_lag, 'later period', 'have')} to come first"
        if spec.label_lag
        else ""
    )
    return (
        f"{newest} is not judged by labels and performance yet: {100 * share:.0f} % of its rows"
        f" have no label{lag}"
    )


def unlabelled(record: StageRecord) -> float:
    """Share of a period's rows without a label."""
    return float(record.attributes.get("label_rate", {}).get("unlabelled_share", 0.0))


def _seasons(
    periods: Sequence[str],
    published: Mapping[str, StageRecord],
    order: Sequence[str],
    spec: DriftSpec,
) -> dict[str, tuple[StageRecord, ...]]:
    if spec.seasonal is None:
        return {}
    back, around = spec.seasonal.back, spec.seasonal.around
    found: dict[str, tuple[StageRecord, ...]] = {}
    for key in periods:
        middle = order.index(key) - back
        keys = order[max(middle - around, 0) : middle + around + 1] if middle >= around else []
        if keys and all(one in published for one in keys):
            found[key] = tuple(published[one] for one in keys)
    return found
