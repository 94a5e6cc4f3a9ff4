"""What a range published before it broke off is known to Dagster, and its failures are told."""

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from dagster._utils.interrupts import capture_interrupts

from ml_assets.adapters.partitioned import Events, Made, make_partitions
from ml_assets.automation.run_requests import hindered
from ml_assets.errors import DataRejected, SourceError, StoreAway
from ml_assets.graph.publish import Published
from ml_assets.records.data_failures import failed_partitions
from ml_assets.spec.records import StageRecord
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline
from ml_assets_tests.worlds.opened import pipeline_of

DAYS = ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]
RAW = Address("flight_delays", "raw_snapshot", "flights")
KEY = dg.AssetKey(RAW.key.split("/"))


@pytest.fixture
def flights(tmp_path: Path) -> Pipeline:
    return pipeline_of(store=EmbeddedStore(tmp_path))


def published(address: Address) -> Made:
    record = StageRecord(
        key=address.key,
        partition=address.partition,
        run_key="0" * 64,
        code_version="1",
        data_version="1",
        rows=1,
        inputs=(),
        run="",
        time=datetime.now(UTC),
    )
    return Made(Published(record, "c"), {})


def run_range(
    instance: dg.DagsterInstance, pipeline: Pipeline, make: Callable[[Address], Made]
) -> dg.ExecuteInProcessResult:
    """A run of all days."""

    @dg.asset(
        key=KEY,
        partitions_def=dg.DailyPartitionsDefinition(DAYS[0], end_date="2024-01-05"),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def raw(context: dg.AssetExecutionContext) -> Events:
        yield from make_partitions(context, pipeline, RAW, make, dict)

    tags = {
        "dagster/asset_partition_range_start": DAYS[0],
        "dagster/asset_partition_range_end": DAYS[-1],
    }
    return dg.materialize([raw], instance=instance, tags=tags, raise_on_error=False)


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), dg.DagsterExecutionInterruptedError(), OSError(28, "No space left")],
    ids=repr,
)
def test_a_range_that_breaks_off_has_reported_what_it_published(
    flights: Pipeline, error: BaseException
) -> None:
    def make(address: Address) -> Made:
        if address.partition == DAYS[0]:
            raise SourceError("the first day cannot be read")
        if address.partition == DAYS[-1]:
            raise error
        return published(address)

    with dg.DagsterInstance.ephemeral() as instance:
        assert not run_range(instance, flights, make).success
        assert instance.get_materialized_partitions(KEY) == {DAYS[1], DAYS[2]}
    (failed,) = failed_partitions(flights.now()).values()
    assert DAYS[0] in failed


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("last", [DAYS[1], DAYS[3]])
def test_a_range_that_is_told_to_end_while_dagster_stores_a_day_has_told_its_failures(
    flights: Pipeline, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    def make(address: Address) -> Made:
        if address.partition == DAYS[0]:
            raise DataRejected("half of it")
        return published(address)

    with dg.DagsterInstance.ephemeral() as instance:
        events = instance.event_log_storage
        store = events.store_event

        def told_to_end(event: dg.EventLogEntry) -> None:
            stored = event.dagster_event
            if stored and stored.is_step_materialization and stored.partition == last:
                os.kill(os.getpid(), signal.SIGINT)
            store(event)

        monkeypatch.setattr(events, "store_event", told_to_end)
        with capture_interrupts():
            assert not run_range(instance, flights, make).success
        assert instance.get_materialized_partitions(KEY) == {d for d in DAYS[1:] if d <= last}
    assert failed_partitions(flights.now()) == {RAW.key: [DAYS[0]]}


def test_each_day_is_known_to_dagster_before_the_next_is_begun(flights: Pipeline) -> None:
    known: list[set[str]] = []
    with dg.DagsterInstance.ephemeral() as instance:

        def make(address: Address) -> Made:
            known.append(instance.get_materialized_partitions(KEY))
            return published(address)

        assert run_range(instance, flights, make).success
        assert instance.get_materialized_partitions(KEY) == set(DAYS)
        assert len(instance.fetch_materializations(KEY, limit=9).records) == len(DAYS)
    assert known == [set(DAYS[:number]) for number in range(len(DAYS))]


@pytest.mark.parametrize("bad", DAYS[:2])
def test_a_range_that_a_store_hindered_is_worth_another_try_whatever_else_failed(
    flights: Pipeline, bad: str
) -> None:
    def make(address: Address) -> Made:
        if address.partition == bad:
            raise DataRejected("half of it")
        raise StoreAway("lakeFS does not answer")

    with dg.DagsterInstance.ephemeral() as instance:
        assert hindered(instance, run_range(instance, flights, make).dagster_run)
