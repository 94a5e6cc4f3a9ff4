"""Volume: whether a partition has about as many rows as the one before it."""

from ml_assets.spec.sources import VolumeSpec
from ml_assets.validation.compiled import ExpectationResult

CHECK_NAME = "volume"


def judge_volume(rows: int, before: int | None, spec: VolumeSpec) -> ExpectationResult:
    """Compare the rows of a partition with those of the newest one before it.

    Args:
        before: None where there is no partition before: nothing can be said, so it passes.
    """
    change = None if not before else rows / before - 1
    passed = change is None or abs(change) <= spec.within
    return ExpectationResult(
        check_name=CHECK_NAME,
        type="volume_against_the_partition_before",
        severity=spec.severity,
        passed=passed,
        rows_failed=0,
        observed=rows,
        reason=_reason(rows, before, change, spec.within),
    )


def _reason(rows: int, before: int | None, change: float | None, within: float) -> str:
    if change is None:
        return f"{rows:,} rows; there is no partition before to compare with"
    return (
        f"{rows:,} rows against {before:,} in the partition before: {change:+.1%},"
        f" within {within:.0%} was expected"
    )
