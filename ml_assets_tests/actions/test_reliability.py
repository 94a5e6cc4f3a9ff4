"""What ran by itself and ended well: a refusal is a good end, a missed tick is not."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import DagsterAssetCheckFailedError
from dagster._core.storage.tags import SCHEDULED_EXECUTION_TIME_TAG
from dagster_shared.error import SerializableErrorInfo

from ml_assets.actions.reliability import Reliability, reliability
from ml_assets.errors import DataRejected, RefusedByGate, SourceError
from ml_assets.spec.load import load_spec
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.ticks import switch, tick

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
SENSOR, REFRESH = "irises__landing", "irises__refresh_schedule"
RAN = {"run": "a run"}
BROKE = SerializableErrorInfo("no store\n", [], "StoreAway")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as made:
        yield made


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> PipelineSpec:
    root: Path = tmp_path_factory.mktemp("irises")
    irises.plant(root / "pipelines", root / "sources")
    return load_spec(root / "pipelines" / "irises")


def _run(
    instance: dg.DagsterInstance,
    raises: Exception | None,
    why: str = "sources [2024-01-15]: never made",
    step: str = "irises__validated_table",
    **tags: str,
) -> dg.ExecuteInProcessResult:
    """A run of one step, asked for by the sensor."""

    @dg.op(name=step)
    def work() -> None:
        if raises is not None:
            raise raises

    @dg.job(name="irises__sources")
    def job() -> None:
        work()

    own = {"pipeline": "irises", "why": why, "dagster/sensor_name": SENSOR, **tags}
    return job.execute_in_process(
        instance=instance, tags={k: v for k, v in own.items() if v}, raise_on_error=False
    )


def _of(spec: PipelineSpec, instance: dg.DagsterInstance) -> Reliability:
    return reliability(spec, instance, LONG_AGO, datetime.now(UTC))


def test_nothing_that_ran_by_itself_is_no_share(spec: PipelineSpec, instance: dg.DagsterInstance):
    _run(instance, None, **{"dagster/sensor_name": ""})  # by hand
    assert _of(spec, instance).share is None


def test_a_failure_names_its_cause_and_its_step(spec: PipelineSpec, instance: dg.DagsterInstance):
    _run(instance, None)
    _run(instance, DataRejected("half of it"), why="sources [2024-01-22]: never made")
    found = _of(spec, instance)
    assert (found.well, found.share) == (1, 0.5)
    assert found.causes == (("data rejected in validated_table", 1),)


def test_what_was_tried_until_it_succeeded_counts_once(
    spec: PipelineSpec, instance: dg.DagsterInstance
):
    first = _run(instance, SourceError("the database is away"))
    second = _run(instance, None, why="sources [2024-01-15]: an input changed")
    (work,) = _of(spec, instance).work
    assert (work.end, work.runs) == ("well", (first.run_id, second.run_id))
    assert work.cause == "at try 2: source error in validated_table"


def test_the_same_thing_asked_for_again_after_it_succeeded_counts_again(
    spec: PipelineSpec, instance: dg.DagsterInstance
):
    _run(instance, None)
    _run(instance, None)
    assert len(_of(spec, instance).work) == 2


def test_dagsters_own_retries_count_once(spec: PipelineSpec, instance: dg.DagsterInstance):
    first = _run(instance, SourceError("away"))
    again = {"dagster/root_run_id": first.run_id, "dagster/parent_run_id": first.run_id}
    _run(instance, None, why="another reason", **again)
    (work,) = _of(spec, instance).work
    assert work.end == "well"


def test_a_refresh_that_was_hindered_counts_once_with_all_that_were_asked_for_after_it(
    spec: PipelineSpec, instance: dg.DagsterInstance
):
    due = {SCHEDULED_EXECUTION_TIME_TAG: "2024-02-29T06:00:00+00:00"}
    by = {"dagster/sensor_name": "", "dagster/schedule_name": REFRESH, **due}
    tried = [_run(instance, SourceError("away"), why="model [all rows]", **by)]
    for error in (SourceError("still away"), None):
        again = {"dagster/sensor_name": "irises__runs_begin", "dagster/run_key": tried[-1].run_id}
        why = f"model [all rows]; run {tried[-1].run_id[:8]} failed for a temporary cause"
        tried.append(_run(instance, error, why=why, **again))
    (work,) = _of(spec, instance).work
    assert (work.end, work.asked_by) == ("well", REFRESH)
    assert work.cause.startswith("at try 3: ")
    assert work.runs == tuple(one.run_id for one in tried)


def test_a_refusal_by_a_gate_is_a_good_end(spec: PipelineSpec, instance: dg.DagsterInstance):
    _run(instance, RefusedByGate("auc is too low"), step="irises__released_model")
    found = _of(spec, instance)
    assert [work.end for work in found.work] == ["refused"]
    assert (found.share, found.causes) == (1.0, ())


@pytest.mark.parametrize(
    ("step", "end"),
    [("irises__gates", "refused"), ("irises__validated_table__gates", "failed")],
)
def test_a_check_of_a_table_that_is_named_as_the_gates_refuses_no_model(
    spec: PipelineSpec, instance: dg.DagsterInstance, step: str, end: str
):
    _run(instance, DagsterAssetCheckFailedError("a check failed"), step=step)
    assert [work.end for work in _of(spec, instance).work] == [end]


def test_what_is_asked_for_after_a_refusal_is_another_thing(
    spec: PipelineSpec, instance: dg.DagsterInstance
):
    _run(instance, RefusedByGate("auc is too low"), step="irises__released_model")
    _run(instance, None)
    assert [work.end for work in _of(spec, instance).work] == ["refused", "well"]


def test_every_tick_of_a_schedule_counts_though_it_asks_for_the_same(
    spec: PipelineSpec, instance: dg.DagsterInstance
):
    by = {"dagster/sensor_name": "", "dagster/schedule_name": REFRESH}
    for day, error in (("02-28", SourceError("away")), ("02-29", None)):
        due = {SCHEDULED_EXECUTION_TIME_TAG: f"2024-{day}T06:00:00+00:00"}
        _run(instance, error, why="model [all rows]: an input changed", **by, **due)
    assert [work.end for work in _of(spec, instance).work] == ["failed", "well"]


def test_a_run_that_died_says_so_and_one_at_work_is_not_counted(
    spec: PipelineSpec, instance: dg.DagsterInstance
):
    @dg.job(name="irises__sources")
    def job() -> None: ...

    tags = {"pipeline": "irises", "dagster/sensor_name": SENSOR}
    dead = instance.create_run_for_job(job, tags={**tags, "why": "one"})
    instance.report_run_failed(dead, "Process 7 is gone")
    instance.create_run_for_job(
        job, tags={**tags, "why": "two"}, status=dg.DagsterRunStatus.STARTED
    )
    found = _of(spec, instance)
    assert [work.cause for work in found.work] == ["its process died or never started"]
    assert found.under_way == 1


@pytest.mark.parametrize(
    ("ticks", "ends"),
    [
        ([RAN, {"said": "nothing is due"}], []),
        ([RAN], [(1, "its tick never came")]),
        ([{"error": BROKE}, RAN], [(0, "it could not be evaluated")]),
    ],
)
def test_a_refresh_that_was_due_and_did_not_come_is_a_miss(
    spec: PipelineSpec,
    instance: dg.DagsterInstance,
    ticks: list[dict[str, Any]],
    ends: list[tuple[int, str]],
):
    daily = _refreshed_daily(spec)
    due = [datetime(2024, 2, day, 6, 0, tzinfo=UTC) for day in (28, 29)]
    state = switch(instance, REFRESH, "0 6 * * *", since=due[0] - timedelta(hours=1))
    for at, happened in zip(due, ticks, strict=False):
        tick(instance, state, at, **happened)
    found = reliability(daily, instance, LONG_AGO, datetime(2024, 2, 29, 7, 0, tzinfo=UTC))
    assert [(work.end, work.time) for work in found.work] == [("missed", due[n]) for n, _ in ends]
    for work, (_, said) in zip(found.work, ends, strict=True):
        assert work.cause.startswith(said)


def test_a_tick_whose_record_is_purged_by_now_was_not_missed(spec: PipelineSpec):
    kept = {"retention": {"schedule": {"purge_after_days": 2}}}
    due = datetime(2024, 2, 29, 6, 0, tzinfo=UTC)
    with dg.instance_for_test(overrides=kept) as instance:
        state = switch(instance, REFRESH, "0 6 * * *", since=due - timedelta(days=10))
        tick(instance, state, due, **RAN)
        found = reliability(_refreshed_daily(spec), instance, LONG_AGO, due + timedelta(hours=1))
    assert [work.time for work in found.work] == [due - timedelta(days=1)]


@pytest.mark.parametrize(
    "edited",
    [
        {"every": "week", "at": "monday 08:00"},
        {"every": "day", "at": "06:00"},
        {"every": "week", "at": "monday 06:00", "timezone": "Europe/Berlin"},
    ],
)
def test_a_schedule_that_was_edited_missed_nothing_before_its_last_evaluation(
    spec: PipelineSpec, instance: dg.DagsterInstance, edited: dict[str, str]
):
    monday = datetime(2024, 2, 26, 6, 0, tzinfo=UTC)
    looked = monday + timedelta(days=2)
    begun = monday - timedelta(days=60)
    state = switch(instance, REFRESH, "0 6 * * 1", since=begun, looked=looked)
    tick(instance, state, monday, error=BROKE)
    for week in range(1, 8):
        tick(instance, state, monday - timedelta(weeks=week))
    now, refreshed = looked + timedelta(hours=1), _refreshed(spec, **edited)
    (work,) = reliability(refreshed, instance, LONG_AGO, now).work
    assert work.cause.startswith("it could not be evaluated"), "that is known whatever was edited"
    first, *later = reliability(refreshed, instance, LONG_AGO, now + timedelta(days=7)).work
    assert first == work and later and all(one.time > looked for one in later)


def _refreshed_daily(spec: PipelineSpec) -> PipelineSpec:
    return _refreshed(spec, every="day", at="06:00", timezone="UTC")


def _refreshed(spec: PipelineSpec, **refresh: str) -> PipelineSpec:
    document = spec.model_dump(mode="json", by_alias=True)
    document["automation"]["refresh"] = refresh
    return PipelineSpec.model_validate(document)
