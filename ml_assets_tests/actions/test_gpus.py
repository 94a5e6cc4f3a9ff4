"""The table of GPU types: what fits, how long it takes, what it costs; pure arithmetic."""

import pytest

from ml_assets.actions.gpus import GPUS, on_gpus
from ml_assets.cli.models import _hours
from ml_assets.spec.training_program import MeasureResult


def measured(memory_mb: float) -> MeasureResult:
    """A training of 1,000 steps of 2,000 rows, 10^9 operations each: 2 * 10^15 in all."""
    return MeasureResult(
        session="s",
        attempt=1,
        rows_per_second=4000.0,
        rows_per_cpu_second=4000.0,
        step_time_ms=500.0,
        memory_total_mb=memory_mb,
        data_wait_share=0.0,
        communication_share=0.0,
        flops_per_row=1e9,
        steps_planned=1000,
    )


def test_hours_follow_from_operations_peak_and_stated_utilization() -> None:
    found = {one.name: one for one in on_gpus(measured(10_000), "bf16", 0.5, {"H100": 3.0})}
    assert list(found) == list(GPUS)
    assert found["H100"].hours == pytest.approx(2e15 / (989e12 * 0.5) / 3600)
    assert found["H100"].cost == pytest.approx(3 * found["H100"].hours)
    assert found["T4"].cost is None and found["T4"].fits
    full = {one.name: one for one in on_gpus(measured(10_000), "fp32", 0.5, {})}
    assert full["T4"].hours == pytest.approx(2e15 / (8.1e12 * 0.5) / 3600)


def test_what_one_process_held_has_to_fit() -> None:
    fits = [one.name for one in on_gpus(measured(50_000), "bf16", 0.3, {}) if one.fits]
    assert fits == ["A100-80", "H100", "H200"]


def test_hours_are_said_as_people_say_them() -> None:
    said = [_hours(hours) for hours in (1.33e-06, 0.0123, 7.5, 1234.5)]
    assert said == ["below 0.001", "0.0123", "7.5", "1,234"]
