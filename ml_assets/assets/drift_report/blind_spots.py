"""Finds, before anything runs, the drift of a spec that could never alarm."""

from datetime import UTC, datetime, timedelta

from ml_assets.assets.drift_report.columns import FEWEST_PERIODS
from ml_assets.assets.drift_report.findings import HARDLY, Statistic
from ml_assets.errors import counted
from ml_assets.spec.partitions import windows
from ml_assets.spec.pipeline import SHORTEST
from ml_assets.spec.split import WindowSplit
from ml_assets.store.pipeline_context import Pipeline

_OF_TRAINING = "features, nulls, categories, domain and labels"
_BOUNDS: dict[str, Statistic] = {
    "psi": "psi",
    "ks": "ks",
    "js": "js",
    "new_share": "new_share",
    "domain_auc": "auc",
    "loss_rise": "loss_rise",
}
"""Field of ``drift.bounds`` -> the statistic that it bounds."""


def blind_spots(pipeline: Pipeline) -> list[str]:
    """Return what cannot alarm, each with its remedy; empty where drift is not watched."""
    drift = pipeline.spec.drift
    if drift is None:
        return []
    found = [
        f"drift cannot alarm by {name}: hardly anything exceeds a bound of {bound:g}\n"
        f"    remedy: set drift.bounds.{name} below {HARDLY[statistic]:g}, or leave it out"
        for name, statistic in _BOUNDS.items()
        if (bound := getattr(drift.bounds, name)) >= HARDLY[statistic]
    ]
    return [*found, *_too_few(pipeline)]


def when_enough(pipeline: Pipeline, split: str) -> str:
    """Return when a split of the spec will have periods enough to be back-tested, in words."""
    declared, drift = pipeline.spec.split, pipeline.spec.drift
    if drift and (drift.every or drift.rows):
        return f"make drift.{'every' if drift.every else 'rows'} smaller than {drift.size}"
    if not isinstance(declared, WindowSplit):
        return ""
    lengths = {name: getattr(declared, name) for name in ("train", "validation", "holdout")}
    lengths[split] = max(lengths[split], FEWEST_PERIODS)
    needed = sum(lengths.values()) + 2 * declared.embargo
    last = _partition(pipeline, pipeline.warm_up("feature_set") + needed)
    asked = f"set split.{split} to {lengths[split]}"
    if declared == declared.model_copy(update={split: lengths[split]}):
        asked = "train again"
    if last is None:
        return (
            f"{asked}: the window is {counted(needed, 'partition')} then, more than there will"
            " ever be"
        )
    key, end = last
    there = "is the first that has so many" if end <= datetime.now(UTC) else "has to come first"
    return f"{asked}: the window is {counted(needed, 'partition')} then, and {key} {there}"


def _too_few(pipeline: Pipeline) -> list[str]:
    split = pipeline.spec.split
    if not isinstance(split, WindowSplit):
        return []
    sides = (("train", split.train, _OF_TRAINING), ("holdout", split.holdout, "predictions"))
    return [
        f"drift of {what} cannot alarm: split.{name} is {counted(count, 'partition')}, and it takes"
        f" {FEWEST_PERIODS} to know how much they differ without drift\n"
        f"    remedy: {when_enough(pipeline, name)}"
        for name, count, what in sides
        if count < FEWEST_PERIODS
    ]


def _partition(pipeline: Pipeline, number: int) -> tuple[str, datetime] | None:
    """The key of the partition of that number, from 1, and its end; None: there is never one."""
    spec = pipeline.spec.partitions
    if spec.start is None:
        return None
    begin = datetime.combine(spec.start, datetime.min.time(), UTC)
    longest = SHORTEST[spec.cadence] + timedelta(days=4)
    known = windows(spec, begin + (number + 2) * longest)
    return (known[number - 1].key, known[number - 1].end) if len(known) >= number else None
