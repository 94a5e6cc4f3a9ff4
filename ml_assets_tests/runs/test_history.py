"""Claims about the run history: Dagster's own files, written over few connections."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.event_log import SqliteEventLogStorage
from sqlalchemy import Engine, event

from ml_assets.runs import home
from ml_assets.runs.history import RunHistory
from ml_assets.settings import read_settings

PARTITIONS = [f"p{number}" for number in range(40)]


@dg.asset(
    partitions_def=dg.StaticPartitionsDefinition(PARTITIONS),
    backfill_policy=dg.BackfillPolicy.single_run(),
    check_specs=[dg.AssetCheckSpec("whole", asset="table")],
)
def table(
    context: dg.AssetExecutionContext,
) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
    yield dg.AssetCheckResult(check_name="whole", passed=True)
    yield dg.MaterializeResult(data_version=dg.DataVersion("of all"))
    for key in context.partition_keys:
        tags = {"dagster/data_version": f"version of {key}"}
        context.log_event(dg.AssetMaterialization("table", partition=key, tags=tags))
        for passed in (False, key != "p7"):  # the second replaces the first
            context.log_event(
                dg.AssetCheckEvaluation(  # pyright: ignore[reportArgumentType]  taken, if not declared
                    dg.AssetKey("table"), "whole", passed, metadata={}, partition=key
                )
            )


@pytest.fixture
def dagster_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prepared state folder's DAGSTER_HOME."""
    settings = read_settings({"ML_ASSETS_HOME": str(tmp_path)})
    home.prepare(settings)
    monkeypatch.setenv("DAGSTER_HOME", str(settings.dagster_home))
    return settings.dagster_home


def materialize(instance: dg.DagsterInstance) -> str:
    tags = {"dagster/asset_partition_range_start": "p0", "dagster/asset_partition_range_end": "p39"}
    job = dg.Definitions([table]).resolve_implicit_global_asset_job_def()
    return job.execute_in_process(instance=instance, tags=tags).run_id


def test_the_configuration_names_it(dagster_home: Path) -> None:
    with dg.DagsterInstance.get() as instance:
        assert isinstance(instance.event_log_storage, RunHistory)


def test_dagsters_own_class_reads_every_event_of_every_partition(dagster_home: Path) -> None:
    with dg.DagsterInstance.get() as instance:
        run_id = materialize(instance)
        kept = instance.get_records_for_run(run_id).records
    (dagster_home / "dagster.yaml").write_text("telemetry: {enabled: false}")
    with dg.DagsterInstance.get() as instance:
        assert type(instance.event_log_storage) is SqliteEventLogStorage
        assert instance.get_records_for_run(run_id).records == kept
        assert instance.get_materialized_partitions(table.key) == set(PARTITIONS)
        history = instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(table.key, "whole"), limit=100
        )
    verdicts = {e.partition: e.status.value for e in history if e.partition}
    assert verdicts == {key: "FAILED" if key == "p7" else "SUCCEEDED" for key in PARTITIONS}


TABLES = {
    "event_logs": "dagster_event_type, step_key, asset_key, partition",
    "asset_keys": "asset_key, last_materialization is null, last_run_id is null",
    "asset_event_tags": "event_id, asset_key, key, value",
    "asset_check_executions": "asset_key, check_name, partition, execution_status,"
    " evaluation_event_storage_id, materialization_event_storage_id",
}
"""The index's tables -> their columns without the time and the run's id."""


def test_its_files_hold_what_dagsters_own_class_writes(dagster_home: Path) -> None:
    def written(configuration: str) -> tuple[dict[str, list[tuple[object, ...]]], int]:
        (dagster_home / "dagster.yaml").write_text(configuration)
        with dg.DagsterInstance.get() as instance:
            run_id = materialize(instance)
            of_run = len(instance.get_records_for_run(run_id).records)
            storage = instance.event_log_storage
            assert isinstance(storage, SqliteEventLogStorage)
            with storage.index_connection() as connection:
                tables = {
                    name: sorted(
                        (
                            tuple(row)
                            for row in connection.exec_driver_sql(f"select {columns} from {name}")
                        ),
                        key=str,  # what is planned comes in the order of a set
                    )
                    for name, columns in TABLES.items()
                }
            instance.wipe()
        shutil.rmtree(dagster_home / "history")
        return tables, of_run

    ours = (dagster_home / "dagster.yaml").read_text()
    assert written(ours) == written("telemetry: {enabled: false}")


def test_a_burst_is_stored_together_and_read_at_once(dagster_home: Path) -> None:
    begun: list[str] = []

    def count(connection: object) -> None:
        begun.append(str(connection))

    with dg.DagsterInstance.get() as instance:
        run_id = materialize(instance)
        kept = [record.event_log_entry for record in instance.get_records_for_run(run_id).records]
        of_partitions = {"ASSET_MATERIALIZATION", "ASSET_CHECK_EVALUATION"}
        burst = [
            entry
            for entry in kept
            if (found := entry.dagster_event)
            and found.event_type_value in of_partitions
            and (found.partition or not found.asset_key)
        ]
        event.listen(Engine, "begin", count)
        try:
            for entry in burst[1:]:  # the first is the verdict on all partitions
                instance.event_log_storage.store_event(entry)
            assert not begun
            seen = len(instance.get_records_for_run(run_id).records)
        finally:
            event.remove(Engine, "begin", count)
    assert len(burst) > 3 * len(PARTITIONS)
    assert seen == len(kept) + len(burst) - 1
    assert len(begun) == 3  # the run's file, the index, and what was read


def test_a_reader_beside_it_sees_an_event_as_soon_as_it_is_stored(dagster_home: Path) -> None:
    with dg.DagsterInstance.get() as writer, dg.DagsterInstance.get() as reader:
        run_id = materialize(writer)
        assert reader.get_records_for_run(run_id).records
        writer.report_runless_asset_event(dg.AssetMaterialization("other"))
        assert reader.get_latest_materialization_event(dg.AssetKey("other"))


def test_it_opens_a_handful_of_connections_for_a_hundred_events(dagster_home: Path) -> None:
    opened: list[str] = []

    def count(connection: object, _: object) -> None:
        opened.append(str(connection))

    with dg.DagsterInstance.get() as instance:
        materialize(instance)
        event.listen(Engine, "connect", count)
        try:
            for _ in range(100):
                instance.report_runless_asset_event(dg.AssetMaterialization("other"))
        finally:
            event.remove(Engine, "connect", count)
    assert len(opened) <= 5


def test_it_works_on_after_the_history_was_wiped(dagster_home: Path) -> None:
    with dg.DagsterInstance.get() as instance:
        before = materialize(instance)
        instance.wipe()
        assert instance.get_records_for_run(before).records == []
        after = materialize(instance)
        assert instance.get_records_for_run(after).records
        assert instance.get_materialized_partitions(table.key) == set(PARTITIONS)
