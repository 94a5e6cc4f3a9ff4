"""Volume: whether a partition has about as many rows as those before it."""

from collections.abc import Mapping, Sequence
from statistics import median

from ml_assets.assets.validated_table.contract.results import ExpectationResult
from ml_assets.errors import counted
from ml_assets.spec.sources import VolumeSpec

CHECK_NAME = "volume"
_ROUNDING = 1e-9
"""110 of 100 are 0.10000000000000009 more."""


def compared_with(
    partition: str, published: Sequence[str], calendar: Sequence[str], spec: VolumeSpec
) -> tuple[str, ...]:
    """The partitions that one is held to, newest first; fewer, or none, where they are not there.

    ``every: 1`` takes the newest published ones before it, whatever lies between; else it is the
    calendar that says which one is the same weekday, hour or season.

    Args:
        published: partition keys that there are, in any order.
        calendar: every partition key that there can be, oldest first.
    """
    if spec.every == 1:
        return tuple(sorted((key for key in published if key < partition), reverse=True))[
            : spec.periods
        ]
    if partition not in calendar:
        return ()
    place, there = calendar.index(partition), set(published)
    back = [place - spec.every * number for number in range(1, spec.periods + 1)]
    return tuple(calendar[n] for n in back if n >= 0 and calendar[n] in there)


def judge_volume(rows: int, before: Mapping[str, int], spec: VolumeSpec) -> ExpectationResult:
    """Compare the rows of a partition with the median of those before it.

    Args:
        before: partition -> rows; empty where there is none: nothing can be said, so it passes.
    """
    usual = median(before.values()) if before else 0
    change = rows / usual - 1 if usual else None
    passed = change is None or abs(change) <= spec.within + _ROUNDING
    return ExpectationResult(
        check_name=CHECK_NAME,
        severity=spec.severity,
        passed=passed,
        rows_failed=0,
        observed=rows,
        reason=_reason(rows, before, change, spec),
        details={} if change is None else {"usual": f"{usual:,.6g}", "change": f"{change:+.1%}"},
    )


def volume_words(spec: VolumeSpec) -> str:
    """Return what a partition is held to: ``the partition before``."""
    if spec.every == 1 and spec.periods == 1:
        return "the partition before"
    back = "partitions before" if spec.every == 1 else f"partitions {spec.every} apart before"
    return f"the median of the last {spec.periods} {back}"


def _reason(rows: int, before: Mapping[str, int], change: float | None, spec: VolumeSpec) -> str:
    if change is None:
        return f"{counted(rows, 'row')}; there is no earlier partition to compare with"
    usual = f"{median(before.values()):,.6g}"
    named = ", ".join(before) if len(before) < 4 else f"{len(before)} of them"
    return (
        f"{counted(rows, 'row')} against {usual}, {volume_words(spec)} ({named}): {change:+.1%},"
        f" within {spec.within:.0%} was expected"
    )
