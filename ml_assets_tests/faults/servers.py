"""Faults of what serves the work: pods and their API, the stores, Dagster's programs, Postgres."""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import psutil

from ml_assets_tests.faults.history import runs_of
from ml_assets_tests.faults.injections import (
    DAEMON,
    Command,
    Fault,
    Harm,
    Work,
    begin,
    in_their_steps,
    later,
    name,
    send,
    stopped,
)
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.kubernetes.errors import ApiError
from ml_assets_tests.servers.lakefs import Fault as LakeFault
from ml_assets_tests.worlds.processes import command_line

# --- pods, their API and their store --------------------------------------------------------------


class _Counts(Protocol):
    hits: int


def once_hit(faults: _Counts, end: Callable[[], object], over: Callable[[], bool]) -> Harm:
    """What waits for the next request that it fits."""
    before = faults.hits
    return Harm(lambda: faults.hits > before, over, end)


def to_a_pod(harm: Callable[[ApiServer, str], object]) -> Fault:
    def strike(work: Work) -> Harm | bool:
        assert work.cluster is not None
        alive = [
            pod["metadata"]["name"]
            for pod in work.cluster.pods()
            if pod.get("status", {}).get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
        ]
        if not alive:
            return False
        try:
            done = harm(work.cluster, work.draw.choice(sorted(alive)))
            return done if isinstance(done, Harm) else done is not False
        except (psutil.NoSuchProcess, ApiError):  # it ended meanwhile
            return False

    return strike


def kill_wrapper(cluster: ApiServer, pod: str) -> bool:
    """The first process of each of the pod's containers."""
    return any([send(psutil.Process(pid), signal.SIGKILL) for pid in cluster.processes(pod)])


def stop_wrapper(cluster: ApiServer, pod: str) -> Harm | bool:
    """The same processes stand still for ten seconds."""
    return stopped(*(psutil.Process(pid) for pid in cluster.processes(pod)))


def to_rank_in_pod(number: signal.Signals) -> Callable[[ApiServer, str], bool]:
    def harm(cluster: ApiServer, pod: str) -> bool:
        wrappers = [psutil.Process(pid) for pid in cluster.processes(pod)]
        found = [child for one in wrappers for child in one.children(recursive=True)]
        ranks = [one for one in found if name(one).startswith("rank")]
        return any([send(one, number) for one in ranks[:1]])

    return harm


def stop_a_rank_in_a_pod(work: Work) -> Harm | bool:
    return in_their_steps(work) and to_a_pod(to_rank_in_pod(signal.SIGSTOP))(work)


def _idle(work: Work) -> bool:
    """Whether nobody asks the API server, and nobody watches pods."""
    return not work.asked_lately("cluster") and not (work.cluster and work.cluster.pods())


def to_the_api(harm: Callable[[ApiServer], object]) -> Fault:
    def strike(work: Work) -> Harm | bool:
        assert work.cluster is not None
        if _idle(work):
            return False
        faults = work.cluster.faults
        found = once_hit(faults, faults.clear, lambda: True)
        harm(work.cluster)
        return found

    return strike


def api_away(work: Work) -> Harm | bool:
    """Each connection is reset for four seconds, the open ones at once."""
    assert work.cluster is not None
    if _idle(work):
        return False
    faults = work.cluster.faults
    found = once_hit(faults, lambda: None, lambda: not faults.down)
    away = faults.api_down()
    away.__enter__()
    later(4, lambda: away.__exit__(None, None, None))
    return found


def watches_end(work: Work) -> Harm | bool:
    """All that are open, as when the API server is started again; whoever watches asks anew."""
    assert work.cluster is not None
    if _idle(work):
        return False
    calls = work.cluster.calls
    before = sum(call.verb == "watch" for call in calls)
    work.cluster.faults.drop_watches()
    return Harm(lambda: sum(call.verb == "watch" for call in calls) > before)


def to_the_store(status: str, code: str, times: int) -> Fault:
    def strike(work: Work) -> Harm | bool:
        assert work.store is not None
        if not work.asked_lately("store"):
            return False
        faults = work.store.faults
        found = once_hit(faults, lambda: setattr(faults, "failing", 0), lambda: True)
        with faults.lock:
            faults.status, faults.code, faults.at = status, code, ""
            faults.held, faults.failing = None, times
        return found

    return strike


def store_away(work: Work) -> Harm | bool:
    """All requests are refused for four seconds."""
    assert work.store is not None
    faults = work.store.faults
    found = once_hit(faults, lambda: None, lambda: faults.failing == 0)
    if not to_the_store("503 Service Unavailable", "ServiceUnavailable", -1)(work):
        return False
    later(4, lambda: setattr(faults, "failing", 0))
    return found


def store_stands_still(work: Work) -> Harm | bool:
    """Requests wait for three seconds, then fail."""
    assert work.store is not None
    if not work.asked_lately("store"):
        return False
    faults = work.store.faults
    held = threading.Event()
    found = once_hit(faults, lambda: setattr(faults, "failing", 0), held.is_set)
    with faults.lock:
        faults.status, faults.code, faults.at = "500 Internal Server Error", "InternalError", ""
        faults.held, faults.failing = held, 4
    later(3, held.set)
    return found


def torn(verb: str, times: int) -> Fault:
    """The connection breaks in the middle of what the next of these requests carry."""

    def strike(work: Work) -> Harm | bool:
        assert work.store is not None
        if not work.asked_lately("store"):
            return False
        faults = work.store.faults
        found = once_hit(faults, lambda: setattr(faults, "torn", {}), lambda: True)
        with faults.lock:
            faults.torn = dict.fromkeys([verb], times)
        return found

    return strike


def slow_store(work: Work) -> Harm | bool:
    """What the store answers with comes at 64 KiB a second, for six seconds."""
    assert work.store is not None
    if not work.asked_lately("store"):
        return False
    faults = work.store.faults
    found = once_hit(faults, lambda: None, lambda: not faults.bytes_per_second)
    faults.bytes_per_second = 1 << 16
    later(6, lambda: setattr(faults, "bytes_per_second", 0.0))
    return found


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

    def strike(work: Work) -> Harm | bool:
        assert work.lake is not None
        if not work.asked_lately("lake"):
            return False
        faults = work.lake.faults
        found = once_hit(faults, faults.planned.clear, lambda: True)
        faults.add(LakeFault(*asked, times=times, **what))
        return found

    return strike


def lake_away(work: Work) -> Harm | bool:
    """Each connection is reset for four seconds."""
    assert work.lake is not None
    if not work.asked_lately("lake"):
        return False
    faults = work.lake.faults
    fault = LakeFault(times=-1)
    found = once_hit(faults, lambda: None, lambda: fault not in faults.planned)
    faults.add(fault)
    later(4, lambda: faults.planned.remove(fault))
    return found


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


def second_daemon(work: Work) -> Harm | bool:
    """Another daemon on the same home; it has to refuse."""
    if not _daemon_works(work):
        return False
    home = work.world.root / "state" / "dagster"
    program = ("env", f"DAGSTER_HOME={home}", *DAEMON, "-m", "ml_assets.definitions")
    return _refuses(work, begin(work.world, program=program))


def second_ui(work: Work) -> Harm | bool:
    """Another UI of the same home, while a daemon works on it; it has to refuse."""
    if not _daemon_works(work):
        return False
    return _refuses(work, begin(work.world, "ui"))


def _refuses(work: Work, command: Command) -> Harm:
    """It has to, unless the first one ends meanwhile: then it may take its place."""
    work.others.append(command)
    until = time.monotonic() + 120

    def over() -> bool:
        late = command.poll() is None and time.monotonic() > until
        if late and _daemon_works(work) and "a second daemon was let in" not in work.broken:
            work.broken.append("a second daemon was let in")
        return command.poll() is not None or late

    return Harm(over=over)


def daemon_beside(work: Work) -> Harm:
    """Another daemon on the same database, as while one is replaced: it works for half a minute."""
    other = begin(work.world, "-m", "ml_assets.definitions", program=DAEMON)
    work.others.append(other)
    later(30, lambda: send(other, signal.SIGTERM))
    return Harm(over=lambda: other.poll() is not None)


def database_restarts(mode: str) -> Fault:
    """Postgres is told to restart: ``fast`` ends its sessions, ``immediate`` dies and recovers."""

    def strike(work: Work) -> bool:
        assert work.database is not None
        work.database.control("restart", mode)
        return True

    return strike


def database_away(work: Work) -> Harm:
    """Postgres is down for six seconds."""
    assert work.database is not None
    database, back = work.database, threading.Event()
    database.control("stop", "fast")
    later(6, lambda: (database.control("start"), back.set()))
    return Harm(over=back.is_set)
