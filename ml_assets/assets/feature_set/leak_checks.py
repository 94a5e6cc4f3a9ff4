"""Leak guards as Dagster's checks: they run in the step that makes the rows, before publishing."""

from collections.abc import Iterable, Sequence

import dagster as dg

from ml_assets.adapters.declared import asset_key
from ml_assets.adapters.partitioned import CheckOutcome
from ml_assets.errors import counted
from ml_assets.spec.leaks import LEAK_CHECKS, LeakCheckName, LeakFinding, training_set_checks
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.store.pipeline_context import Pipeline

ROWS_CHECKS: tuple[LeakCheckName, ...] = ("no_future_events",)
"""The checks of feature_set."""


def set_checks(pipeline: Pipeline) -> tuple[LeakCheckName, ...]:
    """The checks of training_set."""
    return training_set_checks(pipeline.spec.split)


def leak_specs(
    pipeline: Pipeline, stage: str, names: Sequence[LeakCheckName]
) -> list[dg.AssetCheckSpec]:
    """One check for each guard; a critical one blocks."""
    return [
        dg.AssetCheckSpec(
            name,
            asset=asset_key(pipeline, stage),
            blocking=pipeline.spec.leaks.severity(name) == "critical",
            description=LEAK_CHECKS[name],
        )
        for name in names
    ]


def outcome(pipeline: Pipeline, found: LeakFinding) -> CheckOutcome:
    """A finding as the check of one partition shows it."""
    critical = pipeline.spec.leaks.severity(found.name) == "critical"
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


def check_result(pipeline: Pipeline, stage: str, found: LeakFinding) -> dg.AssetCheckResult:
    """A finding as the check of a whole asset."""
    check = outcome(pipeline, found)
    return dg.AssetCheckResult(
        asset_key=asset_key(pipeline, stage),
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
