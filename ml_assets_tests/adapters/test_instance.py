"""Dagster's own commands in a fresh checkout with nothing set: state, location, daemon.

Each finds what `ml-assets` uses, and a second daemon never begins.
"""

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import dagster as dg
import pytest
from dagster._cli.utils import get_possibly_temporary_instance_for_cli
from dagster._core.events import StepMaterializationData
from dagster._daemon.types import DaemonHeartbeat

from ml_assets.adapters.declare_asset import asset_key
from ml_assets.adapters.instance import Instance, refuse_second_daemon
from ml_assets.extras.demo import outside_world
from ml_assets.settings import read_settings
from ml_assets.store import home
from ml_assets.store.home import SERVED_AT, exclusive
from ml_assets_tests.worlds.opened import pipeline_of
from ml_assets_tests.worlds.world import free_ports

PROJECT = Path(__file__).parents[2]
SCRIPTS = Path(sysconfig.get_path("scripts"))
OURS = ("ML_ASSETS_", "DAGSTER_", "MLFLOW_")
DAGSTER, DG = (sys.executable, "-m", "dagster"), (str(SCRIPTS / "dg"),)
LOCATIONS = "{ workspaceOrError { ... on Workspace { locationEntries { name } } } }"
INSTANCE = "instance_class: {module: ml_assets.adapters.instance, class: Instance}"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is committed of the product, where this process is, with nothing set."""
    folder = tmp_path / "checkout"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "ml_assets", folder / "ml_assets", ignore=ignored)
    for name in ("pyproject.toml", "workspace.yaml", "dagster.yaml"):
        shutil.copy(PROJECT / name, folder, follow_symlinks=False)
    for name in [name for name in os.environ if name.startswith(OURS)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(folder)
    return folder


def call(*command: str, code: int = 0) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextmanager
def daemon_of(checkout: Path) -> Iterator[Path]:
    """Somebody else is the daemon of a prepared state folder."""
    home.prepare(settings := read_settings({"ML_ASSETS_HOME": str(checkout / ".ml_assets")}))
    with exclusive(settings.dagster_home / "daemon.lock", "Dagster's daemon", "Stop it."):
        yield settings.dagster_home


# --- where the state lies -------------------------------------------------------------------------


def test_without_a_home_the_instance_is_that_of_the_state_folder(
    checkout: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger(__name__)
    with get_possibly_temporary_instance_for_cli("dagster dev", logger=logger) as instance:
        assert type(instance) is Instance
        assert Path(instance.root_directory) == checkout / ".ml_assets" / "dagster"
        assert instance.telemetry_enabled is False
        with dg.DagsterInstance.from_ref(instance.get_ref()) as of_a_process_that_it_starts:
            assert of_a_process_that_it_starts.root_directory == instance.root_directory
    assert [path.name for path in checkout.glob(".tmp_dagster_home_*")] == []


def test_a_home_that_is_named_is_taken(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = checkout / "other"
    other.mkdir()
    (other / "dagster.yaml").write_text(INSTANCE)
    monkeypatch.setenv("DAGSTER_HOME", str(other))
    with get_possibly_temporary_instance_for_cli() as instance:
        assert Path(instance.root_directory) == other
    assert not (checkout / ".ml_assets").exists()


def test_the_logs_of_the_newest_run_stay_open_between_two_events(checkout: Path) -> None:
    """The last reader of a SQLite file that goes copies its write-ahead log, and deletes it."""
    with get_possibly_temporary_instance_for_cli() as instance:
        logs = Path(instance.root_directory) / "history" / "runs"
        for run in ("first", "second"):
            for name in ("one", "two"):
                made = dg.DagsterEvent(
                    event_type_value="ASSET_MATERIALIZATION",
                    job_name="job",
                    event_specific_data=StepMaterializationData(dg.AssetMaterialization(name)),
                )
                instance.report_dagster_event(made, run)
            assert {log.name for log in logs.glob("*-wal")} >= {"index.db-wal", f"{run}.db-wal"}
        assert len(instance.all_logs("first")) == len(instance.all_logs("second")) == 2


@pytest.mark.timeout(30)
def test_a_signal_that_comes_while_an_event_is_written_leaves_no_lock(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes where Dagster has the log's lock and has not yet begun the block that frees it."""
    made = dg.DagsterEvent(
        event_type_value="ASSET_MATERIALIZATION",
        job_name="job",
        event_specific_data=StepMaterializationData(dg.AssetMaterialization("one")),
    )
    with get_possibly_temporary_instance_for_cli() as instance:
        instance.report_dagster_event(made, "first")
        storage = instance.event_log_storage
        write = storage.store_event

        def interrupted(event: dg.EventLogEntry) -> None:
            held = storage.index_connection()
            held.__enter__()
            signal.raise_signal(signal.SIGINT)
            held.__exit__(None, None, None)
            write(event)

        monkeypatch.setattr(storage, "store_event", interrupted)
        with pytest.raises(KeyboardInterrupt):
            instance.report_dagster_event(made, "first")
        assert len(instance.all_logs("first")) == 2


def test_a_state_folder_that_cannot_be_is_told_in_one_line(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "file").write_text("")
    monkeypatch.setenv("ML_ASSETS_HOME", "file")
    with (
        pytest.raises(click.ClickException, match="is a regular file; a folder is expected"),
        get_possibly_temporary_instance_for_cli(),
    ):
        pass


MATERIALIZE = (*DAGSTER, "asset", "materialize", "-m", "ml_assets.definitions", "--select")
LAUNCH = pytest.param((*DG, "launch", "--assets"), marks=pytest.mark.daemon)


@pytest.mark.parametrize("command", [MATERIALIZE, LAUNCH])
def test_dagsters_own_materialization_is_in_the_history_of_ml_assets(
    command: tuple[str, ...], checkout: Path
) -> None:
    outside_world.lay_out(checkout / ".ml_assets" / "demo", arrived=1)
    folder = checkout / "ml_assets" / "pipelines" / "flight_delays"
    graph = pipeline_of(folder)
    flights = asset_key(graph, "raw_snapshot", "flights")
    start = graph.spec.partitions.start
    assert start is not None
    week = start.isoformat()

    call(*command, f'key:"{flights.to_user_string()}"', "--partition", week)

    with dg.DagsterInstance.from_config(str(checkout / ".ml_assets" / "dagster")) as instance:
        assert instance.get_materialized_partitions(flights) == {week}


# --- one daemon -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "environment"),
    [(["dagster", "dev"], {"DAGSTER_IS_DEV_CLI": "1"}), (["dagster-daemon", "run"], {})],
)
def test_a_second_server_is_refused_in_one_line(
    program: list[str],
    environment: dict[str, str],
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", program)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    refused = pytest.raises(click.ClickException, match=r"in use by process \d+ \(Dagster's daemon")
    with daemon_of(checkout), refused, get_possibly_temporary_instance_for_cli():
        pass  # it is not reached
    with get_possibly_temporary_instance_for_cli():
        pass


def test_what_is_no_server_works_beside_a_daemon(checkout: Path) -> None:
    with daemon_of(checkout) as folder, get_possibly_temporary_instance_for_cli() as instance:
        assert Path(instance.root_directory) == folder


def test_a_daemon_that_began_in_the_same_moment_ends_before_its_first_work(checkout: Path) -> None:
    sign = DaemonHeartbeat(0.0, "SENSOR", "the second", errors=[])
    with daemon_of(checkout), get_possibly_temporary_instance_for_cli() as instance:
        with pytest.raises(SystemExit):
            instance.add_daemon_heartbeat(sign)
        assert instance.get_daemon_heartbeats() == {}


def test_a_daemon_holds_the_folder_as_long_as_it_lives(checkout: Path) -> None:
    begin = (
        "from ml_assets_tests.adapters.test_instance import *\n"
        "with get_possibly_temporary_instance_for_cli() as instance:\n"
        "    instance.add_daemon_heartbeat(DaemonHeartbeat(0.0, 'SENSOR', 'it', errors=[]))\n"
        "    instance.add_daemon_heartbeat(DaemonHeartbeat(1.0, 'SCHEDULER', 'it', errors=[]))\n"
        "    print('begun', flush=True)\n"
        "    time.sleep(600)\n"
    )
    at = "http://127.0.0.1:3210"
    search = {**os.environ, "PYTHONPATH": str(PROJECT), SERVED_AT: at}
    with subprocess.Popen(
        [sys.executable, "-c", begin], stdout=subprocess.PIPE, text=True, env=search
    ) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "begun\n"
        who = f"in use by process {daemon.pid} \\(Dagster's daemon of {at}, since"
        with pytest.raises(Exception, match=who):
            refuse_second_daemon(checkout / ".ml_assets" / "dagster")
        daemon.kill()
    refuse_second_daemon(checkout / ".ml_assets" / "dagster")


# --- every command, as it is typed ----------------------------------------------------------------


@pytest.mark.daemon
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            (*DAGSTER, "definitions", "validate"),
            "Validation successful for code location ml_assets",
        ),
        ((*DG, "check", "defs"), "All definitions loaded successfully"),
        ((*DG, "list", "defs", "--json"), "flight_delays"),
    ],
)
def test_a_command_that_looks_works_and_uses_the_state(
    command: tuple[str, ...], said: str, checkout: Path
) -> None:
    assert said in call(*command)
    assert (checkout / ".ml_assets" / "dagster" / "schedules").is_dir()


@pytest.mark.parametrize("command", [(*DAGSTER, "dev"), (*DG, "dev")])
def test_a_port_in_use_is_one_line(command: tuple[str, ...], checkout: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = call(*command, "-p", str(port), code=1)
    line = f"Dagster cannot be served at 127.0.0.1:{port}: Address already in use (by "
    assert [one for one in said.splitlines() if line in one] == [said.splitlines()[-1]]
    assert "Traceback" not in said


def ask(port: int, query: str, server: subprocess.Popen[bytes]) -> Any:
    """What the server of a port answers, as soon as it does."""
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql",
        json.dumps({"query": query}).encode(),
        {"Content-Type": "application/json"},
    )
    while True:
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return json.load(answer)["data"]
        except OSError:
            assert server.poll() is None
            time.sleep(0.5)


@contextmanager
def serving(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server until the block is left; it has ended then, with all that it began."""
    with (
        Path("server.log").open("ab") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as server,
    ):
        try:
            yield server
        finally:
            server.terminate()
            server.wait(60)


@pytest.mark.daemon
@pytest.mark.parametrize(
    "command", [(*DAGSTER, "dev"), (*DAGSTER, "dev", "-w", "workspace.yaml"), (*DG, "dev")]
)
def test_a_server_serves_the_location_of_ml_assets_and_no_second_begins(
    command: tuple[str, ...], checkout: Path
) -> None:
    first, second = free_ports(2)
    lock = checkout / ".ml_assets" / "dagster" / "daemon.lock"
    with serving(*command, "-p", str(first)) as server:
        [entry] = ask(first, LOCATIONS, server)["workspaceOrError"]["locationEntries"]
        assert entry["name"] == "ml_assets"
        while not lock.exists():
            assert server.poll() is None
            time.sleep(0.5)
        for other in (command, (sys.executable, "-m", "ml_assets.cli.main", "ui")):
            option = "--port" if "ui" in other else "-p"
            said = call(*other, option, str(second), code=1)
            assert "Dagster's daemon, since" in said
            assert "Traceback" not in said


SWITCHES = """{
  sensor: sensorOrError(sensorSelector: {repositoryLocationName: "ml_assets",
      repositoryName: "__repository__", sensorName: "flight_delays__landing"}) {
    ... on Sensor { id state: sensorState { status } } }
  schedule: scheduleOrError(scheduleSelector: {repositoryLocationName: "ml_assets",
      repositoryName: "__repository__", scheduleName: "flight_delays__refresh_schedule"}) {
    ... on Schedule { id state: scheduleState { status } } }
}"""
OFF = """mutation {
  stopSensor(id: "%s") { ... on StopSensorMutationResult { state: instigationState { status } } }
  stopRunningSchedule(id: "%s") {
    ... on ScheduleStateResult { state: scheduleState { status } } }
}"""
ON = """mutation { startSchedule(scheduleSelector: {repositoryLocationName: "ml_assets",
    repositoryName: "__repository__", scheduleName: "flight_delays__refresh_schedule"}) {
  ... on ScheduleStateResult { state: scheduleState { status } } } }"""


def switches(port: int, server: subprocess.Popen[bytes]) -> dict[str, Any]:
    """A sensor and a schedule, as soon as the server has loaded the location."""
    while True:
        found = ask(port, SWITCHES, server)
        if all(found.values()):
            return found
        time.sleep(0.5)


def states(found: dict[str, Any]) -> list[str]:
    return [one["state"]["status"] for one in found.values()]


@pytest.mark.daemon
@pytest.mark.timeout(600)
def test_what_one_server_switches_is_so_in_every_other(checkout: Path) -> None:
    ports = free_ports(3)
    ours = (sys.executable, "-m", "ml_assets.cli.main", "ui", "--port", str(ports[0]))
    with serving(*ours) as server:
        found = switches(ports[0], server)
        assert states(found) == ["RUNNING", "RUNNING"]
        off = OFF % (found["sensor"]["id"], found["schedule"]["id"])
        assert states(ask(ports[0], off, server)) == ["STOPPED", "STOPPED"]
    with serving(*DAGSTER, "dev", "-p", str(ports[1])) as server:
        assert states(switches(ports[1], server)) == ["STOPPED", "STOPPED"]
        assert states(ask(ports[1], ON, server)) == ["RUNNING"]
    with serving(*DAGSTER, "dev", "-w", "workspace.yaml", "-p", str(ports[2])) as server:
        assert states(switches(ports[2], server)) == ["STOPPED", "RUNNING"]
