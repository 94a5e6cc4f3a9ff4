"""What a training tells of itself is measured, over all ranks, and changes no bit of the result."""

import gzip
import json
import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch

from ml_assets.spec.parallel import Strategy
from ml_assets.spec.training import ProfileSpec
from ml_assets.spec.training_program.events import Checkpoint, DrawnRows, Metrics, Progress, Trace
from ml_assets.spec.training_program.pod import TRACE
from ml_assets.training.step import Step
from ml_assets.training.step_meter import Meter
from ml_assets.training.telemetry import (
    THROUGHPUT,
    Stopwatch,
    Times,
    gpu_utilization_pct,
    memory_peak_mb,
)
from ml_assets_tests.training.conftest import SPEC, Attempt, Sessions

SLOW_LOADER = """
import os, sys, time
from ml_assets.training import step_meter
from ml_assets.training.__main__ import main
from ml_assets.training.rows.batches import Batches

share = Batches.share

def slow_share(self, step, rank, *more):
    time.sleep(0.05 * (rank == 1))
    return share(self, step, rank, *more)

step_meter.LIVE_SECONDS = 0.0
Batches.share = slow_share
sys.exit(main())
"""


def measured(attempt: Attempt) -> dict[int, dict[str, float]]:
    return {event.step: event.metrics for event in attempt.events() if isinstance(event, Metrics)}


@dataclass(frozen=True)
class Planted(Attempt):
    """The program with a fault in it."""

    def command(self) -> list[str]:
        script = self.folder / "planted.py"
        script.write_text(SLOW_LOADER)
        command = super().command()
        module = command.index("ml_assets.training") - 1
        return [*command[:module], str(script), *command[module + 2 :]]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory, data) -> Attempt:
    """The training of ``whole``, replicated, with a few steps traced."""
    sessions = Sessions(tmp_path_factory.mktemp("traced"), data)
    asked = {"strategy": "replicate", "profile": ProfileSpec(at=7, steps=2)}
    attempt = sessions.attempt("traced", spec=SPEC.model_copy(update=asked))
    assert attempt.run() == 0
    return attempt


def test_every_evaluation_tells_speed_waiting_memory_and_the_size_of_the_update(
    whole: Attempt,
) -> None:
    told = measured(whole)
    assert list(told) == list(whole.validation_losses())
    rows_of_a_step = 1000 / 11
    for metrics in told.values():
        rows = metrics[THROUGHPUT] * metrics["step_time_ms"] / 1000
        assert rows == pytest.approx(rows_of_a_step, rel=0.1)
        assert 0 < metrics["data_wait_share"] < 1
        assert 0 < metrics["communication_share"] < 1
        assert metrics["data_wait_share"] + metrics["communication_share"] < 1
        assert 0 < metrics["data_loading_latency_ms"] < metrics["step_time_ms"]
        assert metrics["memory_peak_mb"] < metrics["memory_total_mb"] < 10_000
        assert 50 < metrics["memory_held_mb"] <= metrics["memory_peak_mb"]
    ratios = [metrics["update_ratio"] for metrics in told.values()]
    assert all(1e-6 < ratio < 0.5 for ratio in ratios[:-1])
    assert not [name for name in told[5] if name.startswith("gpu_")], "there is none"


def test_a_checkpoint_tells_how_long_training_stood_still_for_it(whole: Attempt) -> None:
    saved = [event.metrics for event in whole.events() if isinstance(event, Checkpoint)]
    assert all(0 < metrics["checkpoint_duration_ms"] < 60_000 for metrics in saved)
    assert all(0 < metrics["checkpoint_background_ms"] < 60_000 for metrics in saved)


def test_the_update_ratio_is_the_same_sharded_and_replicated(
    whole: Attempt, traced: Attempt
) -> None:
    one, other = measured(whole), measured(traced)
    for step in one:
        assert one[step]["update_ratio"] == pytest.approx(other[step]["update_ratio"], rel=1e-5)


def test_a_trace_is_of_the_steps_asked_for_and_changes_no_bit(
    whole: Attempt, traced: Attempt
) -> None:
    assert traced.weights() == whole.weights()
    (told,) = (event for event in traced.events() if isinstance(event, Trace))
    assert (told.step, told.steps) == (7, 2)
    assert told.uri == str(traced.folder / TRACE)
    content = json.loads(gzip.decompress((traced.folder / TRACE).read_bytes()))
    names = [event.get("name", "") for event in content["traceEvents"]]
    assert any("AdamW.step" in name for name in names)
    assert sum(name == "gloo:all_reduce" for name in names) >= 2


@pytest.mark.parametrize("strategy", ["shard", "replicate"])
def test_a_slow_loader_of_one_rank_is_waiting_for_data_there_and_for_it_elsewhere(
    sessions: Sessions, strategy: Strategy
) -> None:
    spec = SPEC.model_copy(update={"epochs": 1, "evaluate_every": 8, "strategy": strategy})
    made = sessions.attempt("slow", spec=spec)
    slow = Planted(made.folder, made.request)
    assert slow.run() == 0
    told = measured(slow)
    assert list(told) == list(range(1, 12)), "told of each step, evaluated or not"
    judged = [step for step, metrics in told.items() if "validation_loss" in metrics]
    assert judged == [8, 11]
    both = told[8]
    assert both["data_loading_latency_ms"] > 25, "the mean of 50 ms and nothing"
    step = both["step_time_ms"]
    assert both["data_wait_share"] * step > 15, "about 25: each rank's share is of its own step"
    waited = both["communication_share"] * step
    assert waited > 15, "the quick rank waits in the collectives of a pass"
    assert told[7]["data_wait_share"] < 0.3, "between evaluations rank 0 tells of itself"
    said = [event.message for event in slow.events() if isinstance(event, Progress)]
    assert "validation" not in said[0]
    assert "validation" in said[7]


def test_a_stopwatch_adds_up_and_begins_again() -> None:
    watch = Stopwatch()
    for _ in range(2):
        with watch:
            pass
    watch.add(5.0)
    assert 5.0 < watch.taken() < 6.0
    watch.answered()
    assert watch.taken() == 0.0, "nothing was asked for"
    watch.asked()
    watch.answered()
    assert 0 < watch.taken() < 1


def test_what_was_waited_for_before_a_step_is_of_no_step() -> None:
    """The rows that are shown are fetched before the first one."""
    times = Times(fetch=Stopwatch())
    meter = Meter(torch.nn.Linear(1, 1), times, torch.device("cpu"))  # pyright: ignore[reportArgumentType]
    assert times.fetch is not None
    times.fetch.add(5.0)
    meter.take(lambda: Step(0.5, 0.1, 4.0, False, False, None, DrawnRows()), weigh=False)
    assert meter.live()["fetch_wait_share"] == 0.0


def test_memory_is_this_process_s_own_and_not_its_parent_s() -> None:
    ours = bytearray(300_000_000)
    child = "from ml_assets.training.telemetry import memory_peak_mb; print(memory_peak_mb())"
    said = subprocess.run([sys.executable, "-c", child], capture_output=True, check=True).stdout
    assert len(ours) / 1e6 < memory_peak_mb()
    assert float(said) < 200


def test_a_machine_without_a_gpu_tells_no_utilization() -> None:
    assert gpu_utilization_pct("00000000-0000-0000-0000-000000000000") is None
