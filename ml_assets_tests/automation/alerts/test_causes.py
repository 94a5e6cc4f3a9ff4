"""What is wrong is over when it is mended, however the partitions are run again: one by one, or
as a range. The runs are Dagster's own, and report as every stage does."""

import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from ml_assets.adapters.check_outcome import CheckOutcome, PartitionVerdict, partition_verdicts
from ml_assets.adapters.partitioned import Events, Made, make_partitions
from ml_assets.adapters.runs import PIPELINE_TAG, Selection
from ml_assets.automation.alerts.causes import causes_now
from ml_assets.errors import DataRejected, SourceError
from ml_assets.graph.publish import Published
from ml_assets.records.tracking.links import Links
from ml_assets.spec.records import StageRecord
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, open_pipeline
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

W1, W2, W3, W4 = "2024-01-01", "2024-01-08", "2024-01-15", "2024-01-22"
CHECK = "load_not_null"


@dataclass
class Stage:
    """One weekly stage with one check; what is wrong with which week is set by the test."""

    instance: dg.DagsterInstance
    pipeline: Pipeline
    breaks_contract: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)
    killed_at: str = ""
    drawn: set[str] | None = None
    """The weeks that the check judges; None: all."""

    @property
    def defs(self) -> dg.Definitions:
        whole = Address("flights", "validated_table", "orders")

        @dg.asset(
            key=whole.key.split("/"),
            partitions_def=dg.WeeklyPartitionsDefinition(W1, end_date="2024-03-04", day_offset=1),
            backfill_policy=dg.BackfillPolicy.single_run(),
            check_specs=[dg.AssetCheckSpec(CHECK, asset=whole.key.split("/"), blocking=True)],
        )
        def table(context: dg.AssetExecutionContext) -> Events:
            yield from make_partitions(context, self.pipeline, whole, self.make, dict)

        job = dg.define_asset_job("flights__sources", [table])
        return dg.Definitions([table], jobs=[job])

    def make(self, address: Address) -> Made:
        key = str(address.partition)
        if key == self.killed_at:
            os._exit(9)
        if key in self.unreadable:
            raise SourceError(f"{key} cannot be read")
        passed = key not in self.breaks_contract
        check = CheckOutcome(CHECK, passed, True, {}, f"{key} was judged")
        checks = (check,) if self.drawn is None or key in self.drawn else ()
        if not passed:
            return Made(None, {}, (check,), DataRejected(f"{key} was rejected"))
        record = StageRecord(
            key=address.key,
            partition=key,
            run_key="0" * 64,
            code_version="1",
            data_version="1",
            rows=1,
            inputs=(),
            run="",
            time=datetime.now(UTC),
        )
        return Made(Published(record, "c"), {}, checks)

    def run(self, first: str, last: str) -> bool:
        job = self.defs.resolve_job_def("flights__sources")
        (key,) = job.asset_layer.executable_asset_keys
        done = job.get_subset(asset_selection={key}).execute_in_process(
            instance=self.instance,
            tags=Selection(partitions=(first, last)).tags,
            raise_on_error=False,
        )
        return done.success

    def run_killed(self, first: str, last: str, at: str) -> None:
        """The process is gone when it comes to a week; the next one marks its run as failed."""
        self.killed_at = at
        run = multiprocessing.get_context("fork").Process(target=self.run, args=(first, last))
        run.start()
        run.join()
        assert run.exitcode == 9
        self.killed_at = ""
        (killed,) = self.instance.get_runs(limit=1)
        self.instance.report_run_failed(killed, "Process 7 is gone")

    def evaluations(self) -> list[dg.AssetCheckEvaluation]:
        """What the check said in each run, oldest first."""
        kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION
        runs = reversed(self.instance.get_runs())
        logged = [entry for run in runs for entry in self.instance.all_logs(run.run_id, kind)]
        return [
            entry.get_dagster_event().asset_check_evaluation_data
            for entry in logged
            if entry.is_dagster_event
        ]

    def causes(self) -> list[str]:
        repository = self.defs.get_repository_def()
        found = causes_now(self.instance, repository, Links("d", "r", "m"), datetime.now(UTC))
        return [cause.id for cause in found]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    world = World(tmp_path).plant(irises)
    with dg.instance_for_test() as instance:
        yield Stage(instance, open_pipeline("irises", world.settings))


def test_a_contract_that_a_range_meets_again_is_over_and_told_anew_when_it_fails_again(
    stage: Stage,
) -> None:
    stage.breaks_contract = {W1, W2}
    assert not stage.run(W1, W3)
    failed = [f"check flights/validated_table/orders {CHECK} [{week}]" for week in (W2, W1)]
    assert stage.causes() == failed
    stage.breaks_contract = set()
    assert stage.run(W2, W3)
    assert stage.causes() == [failed[1]], "W1 was in no run since"
    assert stage.run(W1, W3)
    assert stage.causes() == []
    stage.breaks_contract = {W2}
    assert not stage.run(W2, W2)
    assert stage.causes() == [failed[0]]


def test_a_run_evaluates_a_check_once_and_names_every_partition_with_the_worst_in_front(
    stage: Stage,
) -> None:
    """An event for each partition of a year would cost more than the checks themselves."""
    stage.breaks_contract, stage.unreadable = {W2, W3}, {W1}
    assert not stage.run(W1, W4)
    (failed,) = stage.evaluations()
    assert (failed.passed, failed.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert failed.description == f"[{W2}] {W2} was judged (2 of 3 partitions)"
    counts = {name: failed.metadata[name].value for name in ("judged", "failed", "warned")}
    assert counts == {"judged": 3, "failed": 2, "warned": 0}
    assert list(partition_verdicts(failed.metadata)) == [
        PartitionVerdict(W2, "fail", f"{W2} was judged"),
        PartitionVerdict(W3, "fail", f"{W3} was judged"),
        PartitionVerdict(W4, "pass", f"{W4} was judged"),
    ], "what could not be read was not judged"
    stage.breaks_contract, stage.unreadable, stage.drawn = set(), set(), {W3}
    assert stage.run(W2, W4)
    passed = stage.evaluations()[-1]
    assert passed.passed
    assert passed.description == f"{W3} was judged"
    assert [one.verdict for one in partition_verdicts(passed.metadata)] == [
        "not judged",
        "pass",
        "not judged",
    ]
    left = [f"run flights__sources {W4}"]
    assert stage.causes() == left, "of W1, which no check could judge, its run tells"
    stage.drawn = None
    assert stage.run(W1, W1)
    assert stage.causes() == [], "what was published is over, where the check judges a sample too"


def test_a_range_that_failed_is_over_when_what_it_left_undone_is_done(stage: Stage) -> None:
    stage.unreadable = {W1, W2}
    assert not stage.run(W1, W3)
    assert stage.causes() == [f"run flights__sources {W3}"]
    stage.unreadable = {W2}
    assert stage.run(W1, W1)
    assert stage.run(W3, W3)
    assert stage.causes() == [f"run flights__sources {W3}"], "W2 is still not there"
    assert not stage.run(W2, W2)
    assert stage.causes() == [f"run flights__sources {W2}"]
    stage.unreadable = set()
    assert stage.run(W1, W3)
    assert stage.causes() == []


def test_a_contract_that_a_killed_range_met_again_is_over(stage: Stage) -> None:
    """It published the week, so nobody makes that again, and never told what its checks said."""
    stage.breaks_contract = {W2, W3}
    assert not stage.run(W2, W3)
    stage.breaks_contract = {W3}
    stage.run_killed(W2, W4, at=W3)
    assert stage.run(W4, W4)
    of_w3 = f"check flights/validated_table/orders {CHECK} [{W3}]"
    assert stage.causes() == [of_w3, f"run flights__sources {W4}"]
    stage.breaks_contract = set()
    assert stage.run(W3, W3)
    assert stage.causes() == []


@pytest.mark.parametrize("weekly", [True, False], ids=["weekly", "whole"])
def test_a_check_of_a_teams_own_asset_is_over_when_it_passes_in_another_run(
    stage: Stage, weekly: bool
) -> None:
    """It is reported once a run: of a week or a range, or of a table that is no week's."""
    weeks = dg.WeeklyPartitionsDefinition(W1, end_date="2024-03-04", day_offset=1)
    passes = [False]

    @dg.asset(
        key=["flights", "own"],
        partitions_def=weeks if weekly else None,
        backfill_policy=dg.BackfillPolicy.single_run() if weekly else None,
        check_specs=[dg.AssetCheckSpec(CHECK, asset=["flights", "own"])],
    )
    def own() -> dg.MaterializeResult:
        found = dg.AssetCheckResult(passed=passes[0], check_name=CHECK)
        return dg.MaterializeResult(check_results=[found])

    defs = dg.Definitions([own], jobs=[dg.define_asset_job("flights__own", [own])])

    def causes_after(first: str, last: str) -> list[str]:
        tags = Selection(partitions=(first, last)).tags
        job = defs.resolve_job_def("flights__own")
        assert job.execute_in_process(instance=stage.instance, tags=tags).success
        links, now = Links("d", "r", "m"), datetime.now(UTC)
        found = causes_now(stage.instance, defs.get_repository_def(), links, now)
        return [cause.id for cause in found]

    assert causes_after(W1, W1) == [f"check flights/own {CHECK}"]
    passes[0] = True
    assert bool(causes_after(W2, W3)) is weekly, "a week is not answered by others"
    assert causes_after(W1, W3) == []


def test_a_check_explains_the_step_that_it_failed_and_no_other_of_its_run() -> None:
    table, source = (dg.AssetKey(["p", *path]) for path in (("table", "a"), ("raw", "b")))

    def made(*, contract: bool, warning: bool) -> list[str]:
        @dg.asset(
            key=table, check_specs=[dg.AssetCheckSpec("contract", asset=table, blocking=True)]
        )
        def a() -> Iterator[dg.MaterializeResult]:
            yield dg.MaterializeResult(
                check_results=[dg.AssetCheckResult(passed=contract, check_name="contract")]
            )

        @dg.asset_check(asset=table, name="freshness")
        def freshness() -> dg.AssetCheckResult:
            return dg.AssetCheckResult(passed=not warning, severity=dg.AssetCheckSeverity.WARN)

        @dg.asset(key=source)
        def b() -> None:
            raise SourceError("b.csv, line 7: not a number")

        job = dg.define_asset_job("p__sources", selection="*")
        defs = dg.Definitions([a, b], asset_checks=[freshness], jobs=[job])
        with dg.instance_for_test() as instance:
            run = defs.resolve_job_def("p__sources").execute_in_process
            assert not run(instance=instance, raise_on_error=False).success
            repository, links = defs.get_repository_def(), Links("d", "r", "m")
            return [one.kind for one in causes_now(instance, repository, links, datetime.now(UTC))]

    assert made(contract=True, warning=True) == ["stale data", "failed run"]
    assert made(contract=False, warning=False) == ["failed check", "failed run"]


def test_a_run_that_failed_is_over_when_another_job_of_its_pipeline_made_what_failed() -> None:
    """The daemon's job failed; who mended it made the rest from the command line."""
    data, model = (dg.AssetKey(["p", name]) for name in ("data", "model"))
    breaks = [True]

    @dg.asset(key=data)
    def made_first() -> None: ...

    @dg.asset(key=model, deps=[data])
    def fails_then() -> None:
        if breaks[0]:
            raise SourceError("out of range")

    defs = dg.Definitions([made_first, fails_then], jobs=[dg.define_asset_job("p__model", "*")])
    whole = defs.resolve_implicit_global_asset_job_def()
    with dg.instance_for_test() as instance:

        def causes_after(job: dg.JobDefinition, pipeline: str = "p") -> list[str]:
            tags = {PIPELINE_TAG: pipeline}
            job.execute_in_process(instance=instance, raise_on_error=False, tags=tags)
            links, now = Links("d", "r", "m"), datetime.now(UTC)
            found = causes_now(instance, defs.get_repository_def(), links, now)
            return [cause.id for cause in found]

        by_hand = whole.get_subset(asset_selection={model})
        assert causes_after(defs.resolve_job_def("p__model")) == ["run p__model"]
        assert causes_after(by_hand) == ["run __ASSET_JOB p", "run p__model"]
        first = whole.get_subset(asset_selection={data})
        left = ["run __ASSET_JOB p", "run p__model"]
        assert causes_after(first, "q") == left, "another pipeline's, and not what failed"
        breaks[0] = False
        assert causes_after(by_hand) == []
