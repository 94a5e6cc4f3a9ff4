"""Faults of what serves the work: pods and their API, the stores, Dagster's programs, Postgres."""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil

from ml_assets_tests.faults.history import runs_of
from ml_assets_tests.faults.injections import (
    DAEMON,
    Fault,
    Work,
    begin,
    command_line,
    later,
    send,
)
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.lakefs import Fault as LakeFault

# --- pods, their API and their store --------------------------------------------------------------


def to_a_pod(harm: Callable[[ApiServer, str], object]) -> Fault:
    def strike(work: Work) -> bool:
        assert work.cluster is not None
        alive = [
            pod["metadata"]["name"]
            for pod in work.cluster.pods()
            if pod.get("status", {}).get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
        ]
        if not alive:
            return False
        harm(work.cluster, work.draw.choice(sorted(alive)))
        return True

    return strike


def kill_in_pod(cluster: ApiServer, pod: str) -> None:
    for pid in cluster.processes(pod):
        send(psutil.Process(pid), signal.SIGKILL)


def to_the_api(harm: Callable[[ApiServer], object]) -> Fault:
    def strike(work: Work) -> bool:
        assert work.cluster is not None
        harm(work.cluster)
        return True

    return strike


def api_away(cluster: ApiServer) -> None:
    def away() -> None:
        with cluster.faults.api_down():
            time.sleep(4)

    threading.Thread(target=away, daemon=True).start()


def to_the_store(status: str, code: str, times: int) -> Fault:
    def strike(work: Work) -> bool:
        assert work.store is not None
        faults = work.store.faults
        with faults.lock:
            faults.status, faults.code, faults.at = status, code, ""
            faults.held, faults.failing = None, times
        return True

    return strike


def store_away(work: Work) -> bool:
    """All requests are refused for four seconds."""
    to_the_store("503 Service Unavailable", "ServiceUnavailable", -1)(work)
    assert work.store is not None
    faults = work.store.faults
    later(4, lambda: setattr(faults, "failing", 0))
    return True


def store_stands_still(work: Work) -> bool:
    """Requests wait for three seconds, then fail."""
    assert work.store is not None
    faults = work.store.faults
    with faults.lock:
        faults.status, faults.code, faults.at = "500 Internal Server Error", "InternalError", ""
        faults.held, faults.failing = threading.Event(), 4
    later(3, faults.held.set)
    return True


def torn(verb: str, times: int) -> Fault:
    """The connection breaks in the middle of what the next of these requests carry."""

    def strike(work: Work) -> bool:
        assert work.store is not None
        with work.store.faults.lock:
            work.store.faults.torn = dict.fromkeys([verb], times)
        return True

    return strike


def slow_store(work: Work) -> bool:
    """What the store answers with comes at 64 KiB a second, for six seconds."""
    assert work.store is not None
    faults = work.store.faults
    faults.bytes_per_second = 1 << 16
    later(6, lambda: setattr(faults, "bytes_per_second", 0.0))
    return True


def twice(cluster: ApiServer) -> None:
    """The watches that are open end; those opened then tell each event twice."""
    cluster.faults.repeat_events(times=4)
    cluster.faults.drop_watches()


def out_of_order(cluster: ApiServer) -> None:
    """What happened to pods is told two seconds after what happened to their jobs."""
    cluster.faults.delay(2, times=2, verb="watch", resource="pods")
    cluster.faults.drop_watches()


# --- lakeFS ---------------------------------------------------------------------------------------


def to_the_lake(*asked: str, times: int = 1, **what: Any) -> Fault:
    """The next requests of this method and path are answered so."""

    def strike(work: Work) -> bool:
        assert work.lake is not None
        work.lake.faults.add(LakeFault(*asked, times=times, **what))
        return True

    return strike


def lake_away(work: Work) -> bool:
    """Each connection is reset for four seconds."""
    assert work.lake is not None
    planned = work.lake.faults.planned
    fault = work.lake.faults.add(LakeFault(times=-1))
    later(4, lambda: planned.remove(fault))
    return True


# --- Dagster's servers and its database -----------------------------------------------------------


def kill_server(*words: str) -> Fault:
    """SIGKILL to one of the programs behind the UI; not to the supervisor, which names it, too."""

    def strike(work: Work) -> bool:
        found = [p for p in work.processes(*words) if "supervisor.py" not in command_line(p)]
        return bool(found) and send(work.draw.choice(found), signal.SIGKILL)

    return strike


def _daemon_works(work: Work) -> bool:
    """Whether it has asked for a run: until its first sign of life another could take its place."""
    asked = runs_of(work.world.root / "state")
    return bool(asked and work.processes("dagster-daemon"))


def second_daemon(work: Work) -> bool:
    """Another daemon on the same home; it has to refuse."""
    if not _daemon_works(work):
        return False
    home = work.world.root / "state" / "dagster"
    program = ("env", f"DAGSTER_HOME={home}", *DAEMON, "-m", "ml_assets.definitions")
    return _refuses(work, begin(work.world, program=program))


def second_ui(work: Work) -> bool:
    """Another UI of the same home, while a daemon works on it; it has to refuse."""
    if not _daemon_works(work):
        return False
    return _refuses(work, begin(work.world, "ui"))


def _refuses(work: Work, command: psutil.Popen) -> bool:
    try:
        command.wait(120)
    except psutil.TimeoutExpired:
        work.broken.append("a second daemon was let in")
        work.others.append(command)
    return True


def server_stops(work: Work) -> bool:
    """The daemon stands still for ten seconds (SIGSTOP, SIGCONT)."""
    found = work.processes("dagster-daemon", "run")
    for process in found:
        send(process, signal.SIGSTOP)
        later(10, lambda process=process: send(process, signal.SIGCONT))
    return bool(found)


def database_restarts(mode: str) -> Fault:
    """Postgres is told to restart: ``fast`` ends its sessions, ``immediate`` dies and recovers."""

    def strike(work: Work) -> bool:
        assert work.database is not None
        work.database.control("restart", mode)
        return True

    return strike


def database_away(work: Work) -> bool:
    """Postgres is down for six seconds."""
    assert work.database is not None
    work.database.control("stop", "fast")
    later(6, lambda: work.database and work.database.control("start"))
    return True
