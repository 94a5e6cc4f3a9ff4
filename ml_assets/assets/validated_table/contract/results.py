"""The results of an audit, one for each statement about a table."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ml_assets.assets.validated_table.contract.suite import Expectation, Severity
from ml_assets.errors import counted


@dataclass(frozen=True)
class ExpectationResult:
    """The result of a table on one expectation."""

    check_name: str
    severity: Severity
    passed: bool
    rows_failed: int
    """Rows that break it; 0 for a statement about the whole table."""
    observed: int | float | str
    """Row count, column names that differ, or the share of judged rows that hold."""
    reason: str
    """A sentence: what was seen, against what was expected."""
    details: Mapping[str, str] = field(default_factory=dict)
    """More for the page of the check, by name."""


@dataclass(frozen=True)
class WholeFinding:
    """A statement about a table as a whole, or about a column of it."""

    passed: bool
    observed: int | float | str
    reason: str


def whole_result(expectation: Expectation, verdict: WholeFinding) -> ExpectationResult:
    """The result of a statement that no single row breaks."""
    return ExpectationResult(
        check_name=expectation.check_name,
        severity=expectation.severity,
        passed=verdict.passed,
        rows_failed=0,
        observed=verdict.observed,
        reason=verdict.reason,
    )


def share_result(
    expectation: Expectation, words: str, broken: int, judged: int, passed: bool | None = None
) -> ExpectationResult:
    """The result of a statement about each row.

    Args:
        words: what a row must do: ``load must be at least 0``.
        judged: rows that it is about at all; of none, it holds.
        passed: where somebody else decided; else the share is held to ``mostly``.
    """
    share = (judged - broken) / judged if judged else 1.0
    mostly = expectation.kwargs.get("mostly", 1.0)
    asked = "all must" if mostly == 1 else f"a share of {mostly:.10g} must"
    return ExpectationResult(
        check_name=expectation.check_name,
        severity=expectation.severity,
        passed=share >= mostly if passed is None else passed,
        rows_failed=broken,
        observed=share,
        reason=f"{words}: {judged - broken:,} of {counted(judged, 'row')} meet this, {asked}",
    )
