"""What is asked for again: a run that was ended from outside is, one whose step failed is not."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import dagster as dg
import pytest
from sqlalchemy.exc import OperationalError

from ml_assets.adapters.runs import PIPELINE_TAG
from ml_assets.automation import run_requests
from ml_assets.automation.planner.candidate_runs import CandidateRun
from ml_assets.automation.planner.plan import Item, Node, Plan
from ml_assets.automation.planner.selection import ModelRun
from ml_assets.automation.run_requests import RUN_KEY_TAG, Cursor, RequestedRun, sort_out
from ml_assets.errors import AccessRefused, ClusterRefused, SourceError, StoreAway, StoreRefuses
from ml_assets.store.layout import Address


@dg.op
def told_to_end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


@dg.op
def without_the_database() -> None:
    raise OperationalError("select 1", {}, ValueError("server closed the connection"))


@dg.op
def without_its_source() -> None:
    raise SourceError("the source is away") from OperationalError("select 1", {}, ValueError())


@dg.op
def broken() -> None:
    raise ValueError("the reason")


MODEL = ModelRun(Plan(()), sanity="", gates="", selection=None, as_of=None)
CANDIDATE = CandidateRun("model", (), "these rows", "nothing", MODEL)
CURSOR = Cursor(asked={"model": RequestedRun(wanted="these rows", run_key="once")})


def ran(instance: dg.DagsterInstance, *steps: dg.OpDefinition) -> None:
    """The run that was asked for, of a job of these steps."""
    job = dg.GraphDefinition("work", node_defs=steps).to_job()
    tags = {RUN_KEY_TAG: "once", PIPELINE_TAG: "irises"}
    job.execute_in_process(instance=instance, raise_on_error=False, tags=tags)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("op", "again"),
    [
        (told_to_end, True),
        (without_the_database, True),
        (without_its_source, False),
        (broken, False),
    ],
)
def test_a_run_that_was_ended_from_outside_is_asked_for_again(
    op: dg.OpDefinition, again: bool
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        ran(instance, op)
        found = sort_out(instance, [CANDIDATE], CURSOR)
    assert found.fresh == (((CANDIDATE, 2),) if again else ())
    assert bool(found.held) is not again


@dg.op
def without_its_store() -> None:
    raise StoreAway("s3://bucket answered SlowDown again and again")


@dg.op
def as_a_step_of_ours() -> None:
    ours = StoreAway("s3://bucket answered SlowDown again and again")
    raise dg.Failure(str(ours)) from ours


@dg.op
def refused_by_its_store() -> None:
    raise StoreRefuses("s3://bucket cannot be used: the credentials have expired")


@dg.op
def refused_by_its_cluster() -> None:
    raise ClusterRefused("the Job's manifest is not valid")


@dg.op
def unknown_to_its_cluster() -> None:
    raise AccessRefused("our token or certificate is missing, wrong or expired", 401)


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (without_its_store, "is tried again in 1 minute"),
        (as_a_step_of_ours, "is tried again in 1 minute"),
        (refused_by_its_store, "is tried again in 1 minute"),
        (unknown_to_its_cluster, "is tried again in 1 minute"),
        (refused_by_its_cluster, "waits for its source or its code to change"),
    ],
)
def test_a_run_whose_store_is_away_is_asked_for_again_after_a_wait(
    op: dg.OpDefinition, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        ran(instance, op)
        found = sort_out(instance, [CANDIDATE], CURSOR)
        assert found.fresh == ()
        assert said in found.held[0]
        monkeypatch.setattr(run_requests, "FIRST_WAIT", timedelta())  # the minute is over
        again = sort_out(instance, [CANDIDATE], CURSOR).fresh
    assert again == (((CANDIDATE, 2),) if "again" in said else ())


@dg.op(name="irises__validated_table__flowers")
def without_valid_rows() -> None:
    raise dg.Failure("three partitions were refused")


def of_partition(key: str, table: str = "flowers") -> CandidateRun:
    node = Node(Address("irises", "validated_table", table, key), "code")
    return CandidateRun(f"sources [{key}]", (Item(node, True, "never made"),), "these rows", "")


def test_a_run_of_many_partitions_is_looked_at_once_and_they_are_told_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = [f"2024-01-{day:02}" for day in range(1, 31)]
    candidates = [of_partition(key) for key in keys]
    spared = of_partition("2024-01-31", "leaves")
    once = RequestedRun(wanted="these rows", run_key="once")
    cursor = Cursor(asked={one.place: once for one in (*candidates, spared)})
    with dg.DagsterInstance.ephemeral() as instance:
        ran(instance, without_valid_rows)
        looks: list[str] = []
        for name in ("get_run_records", "all_logs"):
            monkeypatch.setattr(instance, name, counted(looks, name, getattr(instance, name)))
        found = sort_out(instance, [*candidates, spared], cursor)
        alone = sort_out(instance, candidates[:1], cursor)
    assert found.fresh == ((spared, 2),), "no step of its table failed"
    (said,) = found.held
    assert said.startswith("sources [2024-01-01 .. 2024-01-30: 30 partitions] failed in run ")
    assert alone.held[0].startswith("sources [2024-01-01] failed in run ")
    assert looks == ["get_run_records", "all_logs"] * 2


@dg.op(name="irises__raw_snapshot__raw_flowers")
def without_a_source_of_one_week() -> None:
    raise SourceError("2024-01-08 cannot be read")


def test_what_was_not_begun_is_asked_for_again_however_often_a_store_was_away_before() -> None:
    spared = of_partition("2024-01-01")
    asked = RequestedRun(wanted="these rows", run_key="once", attempt=6)
    with dg.DagsterInstance.ephemeral() as instance:
        ran(instance, without_a_source_of_one_week)
        found = sort_out(instance, [spared], Cursor(asked={spared.place: asked}))
    (said,) = found.held
    assert "was not begun in run " in said
    assert "(attempt 6) and is tried again in 8 minutes" in said


@dg.op(name="irises__validated_table__leaves")
def without_its_store_in_one_table() -> None:
    raise StoreAway("s3://bucket answered SlowDown again and again")


def test_a_table_whose_store_was_away_does_not_wait_for_the_source_of_another() -> None:
    refused, hindered = of_partition("2024-01-01"), of_partition("2024-01-08", "leaves")
    once = RequestedRun(wanted="these rows", run_key="once")
    cursor = Cursor(asked={one.place: once for one in (refused, hindered)})
    with dg.DagsterInstance.ephemeral() as instance:
        ran(instance, without_valid_rows, without_its_store_in_one_table)
        found = sort_out(instance, [refused, hindered], cursor)
    waits, again = found.held
    assert waits.startswith("sources [2024-01-01] failed in run ")
    assert again.startswith("sources [2024-01-08] failed for a temporary cause in run ")


@dg.op(name="irises__validated_table__leaves")
def told_to_end_in_one_table() -> None:
    raise dg.DagsterExecutionInterruptedError


@dg.op(name="irises__validated_table__roots")
def whose_process_ends_before_the_leaves() -> None:
    raise dg.DagsterExecutionInterruptedError


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (without_its_store_in_one_table, "failed for a temporary cause in run "),
        (told_to_end_in_one_table, None),
        (whose_process_ends_before_the_leaves, None),
    ],
)
def test_a_table_of_a_partition_does_not_wait_for_the_source_of_another(
    other: dg.OpDefinition, said: str | None
) -> None:
    refused, spared = of_partition("2024-01-01"), of_partition("2024-01-01", "leaves")
    both = replace(refused, items=(*refused.items, *spared.items))
    asked = RequestedRun(wanted="these rows", run_key="once", attempt=2)
    cursor = Cursor(asked={both.place: asked})
    with dg.DagsterInstance.ephemeral() as instance:
        ran(instance, without_valid_rows, other)
        found = sort_out(instance, [both], cursor)
        alone = sort_out(instance, [refused], cursor)
    assert found.fresh == ((both, 3),) if said is None else said in found.held[0]
    assert "waits for its source or its code to change" in alone.held[0]


def test_what_follows_from_a_refused_source_waits_with_it() -> None:
    snapshot = Node(Address("irises", "raw_snapshot", "flowers", "2024-01-01"), "code")
    table = Node(
        Address("irises", "validated_table", "flowers", "2024-01-01"), "code", (snapshot.address,)
    )
    items = (Item(snapshot, True, "never made"), Item(table, True, "never made"))
    refused = CandidateRun("sources [2024-01-01]", items, "these rows", "")
    once = RequestedRun(wanted="these rows", run_key="once")
    with dg.DagsterInstance.ephemeral() as instance:
        ran(instance, without_a_source_of_one_week)
        found = sort_out(instance, [refused], Cursor(asked={refused.place: once}))
    assert "waits for its source or its code to change" in found.held[0]


def counted(looks: list[str], name: str, ask: Callable[..., object]) -> Callable[..., object]:
    def asked(*arguments: object, **more: object) -> object:
        looks.append(name)
        return ask(*arguments, **more)

    return asked
