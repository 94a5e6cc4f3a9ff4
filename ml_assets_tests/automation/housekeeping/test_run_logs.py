"""Deleting what a run printed: its logs go, and everything that Dagster tells stays."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ml_assets.automation.housekeeping import run_logs

QUIET = {"telemetry": {"enabled": False}}
TABLE = dg.AssetKey("table")


@dg.asset(check_specs=[dg.AssetCheckSpec("whole", asset="table")])
def table() -> dg.MaterializeResult:
    print("to the log of the step")
    return dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=True)])


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=QUIET) as instance:
        yield instance


def materialize(instance: dg.DagsterInstance) -> str:
    return dg.materialize([table], instance=instance).run_id


def test_what_a_run_printed_goes_and_what_it_told_stays(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    run = materialize(instance)
    [printed] = (tmp_path / "storage" / run).rglob("*.out")
    assert "to the log of the step" in printed.read_text()
    told = instance.all_logs(run)

    freed = run_logs.delete(instance, run)

    assert freed > 0
    assert not (tmp_path / "storage" / run).exists()
    assert instance.all_logs(run) == told
    assert instance.get_latest_materialization_event(TABLE) is not None


def test_it_is_done_once_and_never_to_a_run_in_progress(instance: dg.DagsterInstance) -> None:
    ended = materialize(instance)
    going = instance.add_run(dg.DagsterRun("a_job", status=dg.DagsterRunStatus.STARTED))
    assert [thing.name for thing in run_logs.runs(instance)] == [f"run {ended}"]
    assert run_logs.oldest_in_progress(instance, besides=None) is not None
    assert run_logs.oldest_in_progress(instance, besides=going.run_id) is None
    run_logs.delete(instance, ended)
    assert run_logs.runs(instance) == []
    assert run_logs.delete(instance, ended) == 0
