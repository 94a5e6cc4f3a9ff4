"""Leak guards as Dagster's checks: they run in the step that makes the rows, before publishing."""

from collections.abc import Iterable, Sequence

import dagster as dg

from ml_assets.errors import counted
from ml_assets.graph.partitioned import CheckOutcome
from ml_assets.graph.pipeline_graph import PipelineGraph
from ml_assets.spec.leaks import LEAK_CHECKS, LeakCheckName, LeakFinding, training_set_checks
from ml_assets.spec.pipeline import PipelineSpec

ROWS_CHECKS: tuple[LeakCheckName, ...] = ("no_future_events",)
"""The checks of feature_set."""


def set_checks(graph: PipelineGraph) -> tuple[LeakCheckName, ...]:
    """The checks of training_set."""
    return training_set_checks(graph.spec.split)


def leak_specs(
    graph: PipelineGraph, stage: str, names: Sequence[LeakCheckName]
) -> list[dg.AssetCheckSpec]:
    """One check for each guard; a critical one blocks."""
    return [
        dg.AssetCheckSpec(
            name,
            asset=graph.key(stage),
            blocking=graph.spec.leaks.severity(name) == "critical",
            description=LEAK_CHECKS[name],
        )
        for name in names
    ]


def outcome(graph: PipelineGraph, found: LeakFinding) -> CheckOutcome:
    """A finding as the check of one partition shows it."""
    critical = graph.spec.leaks.severity(found.name) == "critical"
    return CheckOutcome(
        found.name,
        found.passed,
        dg.AssetCheckSeverity.ERROR if critical else dg.AssetCheckSeverity.WARN,
        {
            **({} if found.value is None else {"value": found.value}),
            "bound": found.bound,
            **({"named": ", ".join(found.named)} if found.named else {}),
        },
        found.reason,
    )


def check_result(graph: PipelineGraph, stage: str, found: LeakFinding) -> dg.AssetCheckResult:
    """A finding as the check of a whole asset."""
    check = outcome(graph, found)
    return dg.AssetCheckResult(
        asset_key=graph.key(stage),
        check_name=check.name,
        passed=check.passed,
        severity=check.severity,
        description=check.reason,
        metadata=dict(check.metadata),
    )


def refusal(found: Iterable[LeakFinding], spec: PipelineSpec, what: str) -> str | None:
    """Why rows are not published: what each critical guard says; None where all of them passed."""
    bad = [one for one in found if not one.passed and spec.leaks.severity(one.name) == "critical"]
    if not bad:
        return None
    lines = "\n".join(f"    {one.name}: {one.reason}" for one in bad)
    number = counted(len(bad), "leak guard")
    return f"{what}: {number} failed; nothing was published.\n{lines}"
