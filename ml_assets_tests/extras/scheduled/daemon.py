"""Dagster's daemon on a clock of ours: its own loops, one iteration at a time, in this process.

Schedules and sensors are evaluated, runs leave the queue, dead workers are found and crashed runs
are made again by Dagster's own code. Only two things are not Dagster's: time stands still while a
tick is evaluated (never while a run works: its waits would not end), and a run's worker is this
process, or `dagster api execute_run` in one of its own where it is to be killed.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dagster._core.launcher.base import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.launcher.sync_in_memory_run_launcher import SyncInMemoryRunLauncher
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.test_utils import freeze_time
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.auto_run_reexecution.event_log_consumer import EventLogConsumerDaemon
from dagster._daemon.monitoring.run_monitoring import execute_run_monitoring_iteration
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from dagster._daemon.sensor import execute_sensor_iteration
from dagster._grpc.impl import core_execute_run
from dagster._scheduler.scheduler import ScheduleIterationTimes, launch_scheduled_runs
from dagster._utils.hosted_user_process import recon_job_from_origin

from ml_assets.definitions import PROJECT

SILENT = logging.getLogger("ml_assets_tests.daemon")
PRODUCTION = PROJECT / "deploy" / "dagster" / "dagster.yaml"
ROUNDS = 30
"""More than any day takes: three runs, each of them tried again as often as it may be."""


class Workers(SyncInMemoryRunLauncher):
    """Stands where `K8sRunLauncher` does: knows what was launched, and whether its worker lives."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.launched: list[dg.DagsterRun] = []
        self.dead: set[str] = set()

    def launch_run(self, context: LaunchRunContext) -> None:
        self.launched.append(context.dagster_run)

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        dead = run.run_id in self.dead
        return CheckRunHealthResult(WorkerStatus.FAILED if dead else WorkerStatus.RUNNING)


def configure(home: Path) -> None:
    """Write the `dagster.yaml` of a laptop, with the retries of a cluster and these workers."""
    document = yaml.safe_load((PROJECT / "dagster.yaml").read_text())
    document["run_retries"] = yaml.safe_load(PRODUCTION.read_text())["run_retries"]
    document["run_launcher"] = {"module": __name__, "class": Workers.__name__}
    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text(yaml.safe_dump(document))


class Daemon:
    """One daemon at work on an instance.

    Args:
        work: does what a run's worker does, and tells whether that worker lived to its end.
    """

    def __init__(
        self,
        context: WorkspaceProcessContext,
        now: datetime,
        work: Callable[[dg.DagsterRun], bool],
    ) -> None:
        self.now = now
        self._context = context
        self._instance = context.instance
        workers = self._instance.run_launcher
        assert isinstance(workers, Workers)
        self._workers = workers
        self._work = work
        self._times: dict[str, ScheduleIterationTimes] = {}
        self._queue = QueuedRunCoordinatorDaemon(interval_seconds=0)
        self._failures = EventLogConsumerDaemon()

    def pass_until(self, time: datetime) -> None:
        """Nothing is evaluated until then."""
        assert time >= self.now, "time runs forwards"
        self.now = time

    def schedules(self) -> None:
        """One look at every schedule; what is asked for is worked on, and tried again."""
        with freeze_time(self.now):
            _exhaust(launch_scheduled_runs(self._context, SILENT, self.now, self._times))
        while self._runs():
            pass

    def settle(self) -> None:
        """Sensors and runs, until nothing is asked for and nothing waits."""
        for _ in range(ROUNDS):
            before = self._count()
            self._sensors()
            worked = self._runs()
            if not worked and self._count() == before:
                return
        raise AssertionError(f"still at work after {ROUNDS} rounds")

    def _sensors(self) -> None:
        self.now += timedelta(minutes=2)  # more than the time between two ticks of any
        with freeze_time(self.now):
            _exhaust(execute_sensor_iteration(self._context, SILENT, None, None))

    def _runs(self) -> bool:
        """Runs leave the queue, work, and are looked after; whether there was any."""
        _exhaust(self._queue.run_iteration(self._context))
        launched, self._workers.launched = self._workers.launched, []
        for run in launched:
            if not self._work(run):
                self._workers.dead.add(run.run_id)
        _exhaust(execute_run_monitoring_iteration(self._context, SILENT))
        _exhaust(self._failures.run_iteration(self._context))
        return bool(launched)

    def _count(self) -> int:
        return self._instance.get_runs_count()


def workspace(instance: dg.DagsterInstance) -> WorkspaceProcessContext:
    """The code location of `workspace.yaml`, loaded in this process."""
    origin = InProcessCodeLocationOrigin(
        LoadableTargetOrigin(python_file=None, module_name="ml_assets.definitions"),
        location_name="ml_assets",
    )
    return WorkspaceProcessContext(instance, InProcessWorkspaceLoadTarget([origin]))


def work_here(run: dg.DagsterRun, instance: dg.DagsterInstance) -> bool:
    """What a worker does with a run, in this process; it lives."""
    assert run.job_code_origin is not None
    job = recon_job_from_origin(run.job_code_origin)
    _exhaust(core_execute_run(job, run, instance, inject_env_vars=False))
    return True


def _exhaust(steps: Iterable[Any]) -> None:
    for _ in steps:
        pass
