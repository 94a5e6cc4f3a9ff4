"""Pruning a real event log: messages go, and every page about an asset says what it said before."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import EmptyWorkspaceTarget
from dagster_graphql.schema import create_schema

from ml_assets.operations import event_log

CHATTER = 20
QUIET = {"telemetry": {"enabled": False}}
ASSET_PAGE = """
query {
  assetOrError(assetKey: {path: ["table"]}) { ... on Asset {
    assetMaterializations {
      runId partition timestamp tags { key value } runOrError { __typename }
      metadataEntries { label ... on IntMetadataEntry { intValue }
                        ... on MarkdownMetadataEntry { mdStr } }
    }
    assetObservations { runId metadataEntries { label ... on IntMetadataEntry { intValue } } }
  } }
  assetCheckExecutions(assetKey: {path: ["table"]}, checkName: "whole", limit: 10) {
    id runId status timestamp
    evaluation { success severity description metadataEntries { label } }
  }
}
"""
RUN_PAGE = """
query($run: ID!) {
  runOrError(runId: $run) { ... on Run { status startTime endTime tags { key }
    assetMaterializations { timestamp } } }
  logsForRun(runId: $run) { __typename ... on EventConnection { events { __typename } } }
}
"""
SCHEMA = create_schema()


@dg.asset(
    partitions_def=dg.StaticPartitionsDefinition(["a", "b"]),
    check_specs=[dg.AssetCheckSpec("whole", asset="table")],
)
def table(context: dg.AssetExecutionContext) -> Iterator[Any]:
    print("to the compute log")
    for number in range(CHATTER):
        context.log.info(f"message {number} " + "x" * 5000)
    yield dg.AssetObservation("table", metadata={"seen": 7})
    yield dg.MaterializeResult(
        metadata={"rows": 12, "note": dg.MarkdownMetadataValue("**bold**")},
        data_version=dg.DataVersion(f"version of {context.partition_key}"),
        check_results=[dg.AssetCheckResult(passed=True, description="all there")],
    )


@dg.asset(deps=[table])
def broken() -> None:
    raise ValueError("the reason")


@pytest.fixture(params=["of dagster", "of this project"])
def instance(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    kept_open = {
        "module": "ml_assets.runs.history",
        "class": "RunHistory",
        "config": {"home": str(tmp_path)},
    }
    own = {"event_log_storage": kept_open} if request.param == "of this project" else {}
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides={**QUIET, **own}) as instance:
        yield instance


def materialize(instance: dg.DagsterInstance, partition: str) -> str:
    return dg.materialize([table], instance=instance, partition_key=partition).run_id


def ask(instance: dg.DagsterInstance, query: str, **variables: str) -> dict[str, Any]:
    """What the UI is told."""
    with WorkspaceProcessContext(instance, EmptyWorkspaceTarget()) as process:
        context = process.create_request_context()
        answer = asyncio.run(
            SCHEMA.execute_async(query, context_value=context, variable_values=variables)
        )
    assert answer.data and not answer.errors, answer.errors
    return answer.data


def types_in(instance: dg.DagsterInstance, run: str) -> list[str]:
    return [
        entry.dagster_event.event_type_value if entry.dagster_event else "a message"
        for entry in instance.all_logs(run)
    ]


def test_the_asset_page_says_the_same_after_the_pruning(instance: dg.DagsterInstance) -> None:
    runs = [materialize(instance, partition) for partition in ("a", "b", "a")]
    before = ask(instance, ASSET_PAGE)
    assert [m["runId"] for m in before["assetOrError"]["assetMaterializations"]] == runs[::-1]
    assert len(before["assetCheckExecutions"]) == len(before["assetOrError"]["assetObservations"])
    for run in runs:
        event_log.prune(instance, run)
    assert ask(instance, ASSET_PAGE) == before


def test_what_is_asked_of_the_instance_is_the_same_after_the_pruning(
    instance: dg.DagsterInstance,
) -> None:
    run = materialize(instance, "a")
    key = dg.AssetKey("table")

    def asked() -> tuple[object, ...]:
        return (
            instance.get_materialized_partitions(key),
            instance.get_latest_materialization_event(key),
            instance.fetch_materializations(key, limit=9).records,
            instance.fetch_observations(key, limit=9).records,
            instance.get_latest_data_version_record(key, partition_key="a"),
            instance.get_asset_keys(),
            instance.event_log_storage.get_latest_asset_check_execution_by_key(
                [dg.AssetCheckKey(key, "whole")]
            ),
        )

    before = asked()
    event_log.prune(instance, run)
    assert asked() == before
    materialize(instance, "b")
    assert instance.get_materialized_partitions(key) == {"a", "b"}


def test_messages_and_compute_logs_go_and_the_file_shrinks(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    run = materialize(instance, "a")
    assert types_in(instance, run).count("a message") >= CHATTER
    assert list((tmp_path / "storage" / run).rglob("*.out"))
    materialize(instance, "b")  # the storage may hold the file of the newest run open
    [(size, file)] = [(f.stat().st_size, f) for f in tmp_path.rglob(f"{run}.db")]
    freed = event_log.prune(instance, run)
    assert file.stat().st_size < size / 3
    assert freed == size - file.stat().st_size
    assert not (tmp_path / "storage" / run).exists()
    left = types_in(instance, run)
    assert {"ASSET_MATERIALIZATION", "ASSET_OBSERVATION", "ASSET_CHECK_EVALUATION"} < set(left)
    assert "a message" not in left
    assert "STEP_OUTPUT" not in left


def test_the_page_of_a_run_still_opens_and_a_failure_still_has_its_reason(
    instance: dg.DagsterInstance,
) -> None:
    run = dg.materialize([broken], instance=instance, raise_on_error=False).run_id
    event_log.prune(instance, run)
    page = ask(instance, RUN_PAGE, run=run)
    assert page["runOrError"]["status"] == "FAILURE"
    shown = [event["__typename"] for event in page["logsForRun"]["events"]]
    assert "ExecutionStepFailureEvent" in shown
    assert "RunFailureEvent" in shown
    [failure] = [e for e in instance.all_logs(run, of_type=dg.DagsterEventType.STEP_FAILURE)]
    assert failure.dagster_event is not None
    assert "the reason" in str(failure.dagster_event.step_failure_data.error)


def test_a_run_is_pruned_once_and_a_run_in_progress_never(instance: dg.DagsterInstance) -> None:
    ended = materialize(instance, "a")
    going = instance.add_run(dg.DagsterRun("a_job", status=dg.DagsterRunStatus.STARTED))
    assert [thing.name for thing in event_log.runs(instance)] == [f"run {ended}"]
    assert event_log.oldest_in_progress(instance, besides=None) is not None
    assert event_log.oldest_in_progress(instance, besides=going.run_id) is None
    event_log.prune(instance, ended)
    assert event_log.runs(instance) == []
    assert event_log.prune(instance, ended) == 0


def test_a_file_that_is_being_read_is_pruned_and_the_reader_goes_on(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    run = materialize(instance, "a")
    [file] = tmp_path.rglob(f"{run}.db")
    reader = sqlite3.connect(file)
    rows = reader.execute("select id from event_logs")
    rows.fetchone()
    began = time.monotonic()
    event_log.prune(instance, run)
    assert time.monotonic() - began < 10
    assert len(rows.fetchall()) > CHATTER
    reader.close()
    assert "a message" not in types_in(instance, run)


def test_where_there_is_no_file_none_is_made(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    run = instance.add_run(dg.DagsterRun("a_job")).run_id
    assert not list(tmp_path.rglob(f"{run}.db"))
    event_log.prune(instance, run)
    assert not list(tmp_path.rglob(f"{run}.db"))
