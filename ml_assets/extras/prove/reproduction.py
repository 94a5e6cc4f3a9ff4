"""Compares a reproduction with its record: equal, equal within a tolerance, or what differs.

Pure functions; each sentence names where to look first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from ml_assets.errors import counted
from ml_assets.spec.records import Decision

Agreement = Literal["equal", "tolerated", "differs", "not compared"]
"""``tolerated``: other bits, and every metric within the tolerance."""
TOLERANCE = 0.005
"""The relative tolerance of a metric where training ran on another kind of device: 0.5 %."""
_SHOWN = 3


@dataclass(frozen=True)
class Reproduction:
    """Holds what became of one asset."""

    asset: str
    outcome: Agreement
    said: str
    partitions: int = 1
    then: str | None = None
    """Data version by the record; of many partitions, of the first that differs."""
    now: str | None = None


def table_difference(then: pl.DataFrame, now: pl.DataFrame, key: Sequence[str]) -> str:
    """A sentence: columns, number of rows, or how many values of which columns differ.

    Args:
        key: columns that name a row.
    """
    if list(then.schema.items()) != list(now.schema.items()):
        return _columns(then, now)
    if then.height != now.height:
        return f"{counted(now.height, 'row')}, {then.height:,} then{_rows(then, now, key)}"
    then, now = (frame.sort(key, maintain_order=True) for frame in (then, now))
    changed = {
        name: places
        for name in then.columns
        if (places := then[name].ne_missing(now[name]).arg_true()).len()
    }
    if not changed:
        return "the same values in other bytes: another version of polars wrote them"
    first, places = next(iter(changed.items()))
    more = f" and {counted(len(changed) - _SHOWN, 'column')} more" if len(changed) > _SHOWN else ""
    columns = ", ".join(f"{name} ({len(p):,})" for name, p in list(changed.items())[:_SHOWN])
    where = ", ".join(f"{name} {then[name][places[0]]}" for name in key)
    values = f"{then[first][places[0]]!r} then, {now[first][places[0]]!r} now"
    return (
        f"values differ in {columns}{more} of {counted(now.height, 'row')}; first at {where}:"
        f" {first} {values}"
    )


@dataclass(frozen=True)
class MetricGap:
    """The metric that moved most."""

    name: str
    then: float
    now: float

    @property
    def share(self) -> float:
        """The difference as a share of the larger of the two; 0 where both are."""
        return abs(self.now - self.then) / (max(abs(self.then), abs(self.now)) or 1.0)

    def __str__(self) -> str:
        return f"{self.name} {self.now:.6g}, {self.then:.6g} then ({self.share:.2%})"


def metric_gap(then: Mapping[str, float], now: Mapping[str, float]) -> MetricGap | None:
    """The largest relative difference of a metric that both have; None where none is."""
    gaps = [MetricGap(name, then[name], now[name]) for name in then if name in now]
    return max(gaps, key=lambda gap: gap.share, default=None)


def metric_outcome(
    then: Mapping[str, float], now: Mapping[str, float], excuse: str = ""
) -> tuple[Agreement, str]:
    """The outcome for results whose digests differ.

    Args:
        excuse: why bits need not be equal, such as another kind of device; empty: they have to be.
    """
    gap = metric_gap(then, now)
    if gap is None or then.keys() != now.keys():
        return "differs", f"it has other metrics: {sorted(then)} then, {sorted(now)} now"
    if not excuse:
        return "differs", f"other bits on the same kind of device, where none may differ; {gap}"
    asked = f"{excuse}: equal to {TOLERANCE:.1%} is asked, not bits"
    if gap.share <= TOLERANCE:
        return "tolerated", f"{asked}; most in {gap}"
    return "differs", f"{asked}, and it is beyond that: {gap}"


def decision_difference(then: Decision, now: Decision) -> str:
    """Return which gate decided otherwise; empty where none did.

    A latency is not the same twice, so values are left to the report, which is compared itself.
    """
    was, found = ({gate.name: gate for gate in d.gates} for d in (then, now))
    if was.keys() != found.keys():
        return f"other gates: {', '.join(was)} then, {', '.join(found)} now"
    for name, gate in found.items():
        if gate.passed != was[name].passed:
            was_so = _passed(was[name].passed)
            return f"gate {name}: {_passed(gate.passed)} ({gate.reason}), {was_so} then"
    return "" if then.passed == now.passed else f"{_passed(now.passed)} now"


def _passed(passed: bool) -> str:
    return "passed" if passed else "refused"


def _columns(then: pl.DataFrame, now: pl.DataFrame) -> str:
    gone = [name for name in then.columns if name not in now.columns]
    new = [name for name in now.columns if name not in then.columns]
    typed = [
        f"{name} is {now.schema[name]}, {then.schema[name]} then"
        for name in then.columns
        if name in now.columns and now.schema[name] != then.schema[name]
    ]
    parts = [
        *([f"columns are missing: {', '.join(gone)}"] if gone else []),
        *([f"columns are new: {', '.join(new)}"] if new else []),
        *typed,
    ]
    return "; ".join(parts) or f"columns in another order: {', '.join(now.columns)}"


def _rows(then: pl.DataFrame, now: pl.DataFrame, key: Sequence[str]) -> str:
    """The first row that one of the two lacks."""
    for one, other, word in ((now, then, "new"), (then, now, "missing")):
        found = one.join(other, on=list(key), how="anti", nulls_equal=True).sort(key)
        if found.height:
            row = ", ".join(f"{name} {found[name][0]}" for name in key)
            return f"; {found.height:,} {word}, first {row}"
    return ""
