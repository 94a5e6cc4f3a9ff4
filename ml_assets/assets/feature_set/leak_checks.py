"""The leak guards as Dagster checks: they run in the step that makes the rows."""

from collections.abc import Iterable, Sequence

from ml_assets.adapters.check_outcome import CheckOutcome
from ml_assets.adapters.declare_asset import CheckSpec, check_spec
from ml_assets.errors import counted
from ml_assets.spec.leaks import LEAK_CHECKS, LeakCheckName, LeakFinding, training_set_checks
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.store.pipeline_context import Pipeline

ROWS_CHECKS: tuple[LeakCheckName, ...] = ("no_future_events",)
"""The checks of feature_set."""


def set_checks(pipeline: Pipeline) -> tuple[LeakCheckName, ...]:
    """The checks of training_set."""
    return training_set_checks(pipeline.spec.split)


def leak_specs(pipeline: Pipeline, stage: str, names: Sequence[LeakCheckName]) -> list[CheckSpec]:
    """One check for each guard; a critical one blocks."""
    return [
        check_spec(
            pipeline,
            stage,
            name,
            LEAK_CHECKS[name],
            blocking=pipeline.spec.leaks.severity(name) == "critical",
        )
        for name in names
    ]


def outcome(pipeline: Pipeline, found: LeakFinding) -> CheckOutcome:
    """A finding as the check of one partition shows it."""
    critical = pipeline.spec.leaks.severity(found.name) == "critical"
    return CheckOutcome(
        found.name,
        found.passed,
        critical,
        {
            **({} if found.value is None else {"value": found.value}),
            "bound": found.bound,
            **({"named": ", ".join(found.named)} if found.named else {}),
        },
        found.reason,
    )


def refusal(found: Iterable[LeakFinding], spec: PipelineSpec, what: str) -> str | None:
    """The reasons of the critical guards that keep rows from being published; None: all passed."""
    bad = [one for one in found if not one.passed and spec.leaks.severity(one.name) == "critical"]
    if not bad:
        return None
    lines = "\n".join(f"    {one.name}: {one.reason}" for one in bad)
    number = counted(len(bad), "leak guard")
    return f"{what}: {number} failed; nothing was published.\n{lines}"
