"""The faults: each does one harm to a piece of work that is under way, and says what it did."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.lakefs import Fault as LakeFault
from ml_assets_tests.servers.lakefs import LakeFSServer
from ml_assets_tests.servers.s3 import S3Server
from ml_assets_tests.worlds.world import World


@dataclass(frozen=True)
class Work:
    """A command under way in a world, with the servers that it uses."""

    world: World
    command: psutil.Popen
    draw: random.Random
    cluster: ApiServer | None = None
    store: S3Server | None = None
    lake: LakeFSServer | None = None
    others: list[psutil.Popen] = field(default_factory=list)
    """Commands that faults began beside it."""

    def over(self) -> bool:
        return self.command.poll() is not None

    def processes(self, *words: str) -> list[psutil.Process]:
        """Processes below the command whose command line has all these words."""
        return [p for p in below(self.command) if all(word in command_line(p) for word in words)]


Fault = Callable[[Work], bool]
"""False: what it harms is not there yet."""


def below(command: psutil.Popen) -> list[psutil.Process]:
    try:
        return command.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


def name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:  # it ended meanwhile
        return ""


# --- processes of this machine --------------------------------------------------------------------


def _ranks(work: Work) -> list[psutil.Process]:
    """The processes that train; empty before they began."""
    return [one for one in work.processes("ml_assets.training") if name(one).startswith("rank")]


def _kill_torchrun(work: Work) -> bool:
    found = work.processes("ml_assets.training.elastic")  # its forks have its command line
    agents = [one for one in found if name(one) == "pt_elastic"]
    return bool(agents) and _send(work.draw.choice(agents), signal.SIGKILL)


def _to_a_rank(number: signal.Signals) -> Fault:
    def send(work: Work) -> bool:
        ranks = _ranks(work)
        if len(ranks) < 2:
            return False
        return _send(work.draw.choice(ranks), number)

    return send


def _to(number: signal.Signals, *words: str) -> Fault:
    def send(work: Work) -> bool:
        found = work.processes(*words)
        return bool(found) and _send(work.draw.choice(found), number)

    return send


def _to_the_command(number: signal.Signals) -> Fault:
    return lambda work: _send(work.command, number)


def _send(process: psutil.Process, number: signal.Signals) -> bool:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True


def machine_lost(work: Work) -> bool:
    """The command and all below it, at one moment."""
    for process in [work.command, *below(work.command)]:
        _send(process, signal.SIGKILL)
    return True


def second_command(work: Work) -> bool:
    """Somebody asks for the same at the same time."""
    work.others.append(begin(work.world, "run", "irises"))
    return True


def begin(world: World, *arguments: str) -> psutil.Popen:
    """A command of its own session, whose output lies in a file of the world."""
    number = len([*world.root.glob("said-*")])
    with (world.root / f"said-{number:03}").open("wb") as said:
        return psutil.Popen(
            [sys.executable, "-m", "ml_assets.cli.main", *arguments],
            env=world.environment,
            cwd=world.root,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


# --- files ----------------------------------------------------------------------------------------


def damaged_checkpoint(work: Work) -> bool:
    """A byte of the newest checkpoint flips, and a rank dies: the one before it has to do."""
    saved = work.world.root.glob("state/objects/sessions/*-train-*/checkpoints/*/manifest.json")
    try:
        newest = max(saved, key=lambda file: file.stat().st_mtime).parent
        file = next(iter(sorted(newest.glob("*.distcp"))))
        content = bytearray(file.read_bytes())
    except (ValueError, OSError, StopIteration):
        return False
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return _to_a_rank(signal.SIGKILL)(work)


def full_disk(work: Work) -> bool:
    """The disk of the home is full for two seconds; it has to be a disk of its own."""
    state = work.world.root / "state"
    if not state.is_mount():
        return False
    filler = state / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 22, 1 << 16, 1 << 12):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    _later(2, filler.unlink)
    return True


# --- clocks ---------------------------------------------------------------------------------------


def clock_of_its_own(folder: Path) -> dict[str, str]:
    """The environment of processes whose wall clock can jump; empty where there is no compiler."""
    library = folder / "wall_clock.so"
    source = Path(__file__).with_name("wall_clock.c")
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
    if shutil.which("cc") is None or subprocess.run(command, check=False).returncode:
        return {}
    (folder / "clock").write_text("0")
    return {"LD_PRELOAD": str(library), "FAULTS_CLOCK": str(folder / "clock")}


def _clock_jumps(seconds: int) -> Fault:
    def strike(work: Work) -> bool:
        if "FAULTS_CLOCK" not in work.world.extra:
            return False
        clock = Path(work.world.extra["FAULTS_CLOCK"])
        draft = clock.with_suffix(".new")
        draft.write_text(str(int(clock.read_text()) + seconds))
        draft.replace(clock)
        return True

    return strike


# --- pods, their API and their store --------------------------------------------------------------


def _to_a_pod(harm: Callable[[ApiServer, str], object]) -> Fault:
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


def _kill_in_pod(cluster: ApiServer, pod: str) -> None:
    for pid in cluster.processes(pod):
        _send(psutil.Process(pid), signal.SIGKILL)


def _to_the_api(harm: Callable[[ApiServer], object]) -> Fault:
    def strike(work: Work) -> bool:
        assert work.cluster is not None
        harm(work.cluster)
        return True

    return strike


def _api_away(cluster: ApiServer) -> None:
    def away() -> None:
        with cluster.faults.api_down():
            time.sleep(4)

    threading.Thread(target=away, daemon=True).start()


def _to_the_store(status: str, code: str, times: int) -> Fault:
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
    _to_the_store("503 Service Unavailable", "ServiceUnavailable", -1)(work)
    assert work.store is not None
    faults = work.store.faults
    _later(4, lambda: setattr(faults, "failing", 0))
    return True


def store_stands_still(work: Work) -> bool:
    """Requests wait for three seconds, then fail."""
    assert work.store is not None
    faults = work.store.faults
    with faults.lock:
        faults.status, faults.code, faults.at = "500 Internal Server Error", "InternalError", ""
        faults.held, faults.failing = threading.Event(), 4
    _later(3, faults.held.set)
    return True


# --- lakeFS ---------------------------------------------------------------------------------------


def _to_the_lake(*asked: str, times: int = 1, **what: Any) -> Fault:
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
    _later(4, lambda: planned.remove(fault))
    return True


def _later(seconds: float, do: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()


# --- all of them ----------------------------------------------------------------------------------

EVERYWHERE: dict[str, Fault] = {
    "the command is killed": _to_the_command(signal.SIGKILL),
    "the command is interrupted (Ctrl-C)": _to_the_command(signal.SIGINT),
    "the command is told to end (SIGTERM)": _to_the_command(signal.SIGTERM),
    "the same command is given twice": second_command,
}
LAPTOP: dict[str, Fault] = {
    **EVERYWHERE,
    "a rank is killed": _to_a_rank(signal.SIGKILL),
    "a rank stops (SIGSTOP)": _to_a_rank(signal.SIGSTOP),
    "a rank gets a notice (SIGTERM)": _to_a_rank(signal.SIGTERM),
    "torchrun is killed": _kill_torchrun,
    "the supervisor is killed": _to(signal.SIGKILL, "supervisor.py"),
    "the machine is lost": machine_lost,
    "a checkpoint is damaged, a rank dies": damaged_checkpoint,
    "the disk is full": full_disk,
    "the clock goes an hour on": _clock_jumps(3600),
    "the clock goes an hour back": _clock_jumps(-3600),
}
PODS: dict[str, Fault] = {
    **EVERYWHERE,
    "a pod's processes are killed": _to_a_pod(_kill_in_pod),
    "a pod is drained": _to_a_pod(ApiServer.drain),
    "a pod is preempted": _to_a_pod(ApiServer.preempt),
    "a pod is evicted for pressure": _to_a_pod(ApiServer.evict_for_pressure),
    "a pod runs out of memory": _to_a_pod(ApiServer.run_out_of_memory),
    "a node is cut off": _to_a_pod(ApiServer.cut_off),
    "a pod runs twice": _to_a_pod(ApiServer.double),
    "the API server is away for 4 s": _to_the_api(_api_away),
    "the API server answers 429": _to_the_api(lambda c: c.faults.refuse(429, times=5)),
    "the API server answers 500": _to_the_api(lambda c: c.faults.refuse(500, times=5)),
    "the API server is slow": _to_the_api(lambda c: c.faults.delay(1.5, times=6)),
    "an answer of the API server is lost": _to_the_api(lambda c: c.faults.reset(after=True)),
    "all watches end": _to_the_api(lambda c: c.faults.drop_watches()),
    "a watch is too old (410)": _to_the_api(lambda c: c.faults.expire_watch(times=2)),
    "the store asks for patience (503)": _to_the_store("503 Slow Down", "SlowDown", 8),
    "the store fails (500)": _to_the_store("500 Internal Server Error", "InternalError", 5),
    "the store is away for 4 s": store_away,
    "the store stands still": store_stands_still,
    "the store's token has expired": _to_the_store("403 Forbidden", "ExpiredToken", 3),
    "the API server's token has expired": _to_the_api(lambda c: c.faults.refuse(401, times=3)),
}
LAKEFS: dict[str, Fault] = {
    **EVERYWHERE,
    "a rank is killed": _to_a_rank(signal.SIGKILL),
    "lakeFS is away for 4 s": lake_away,
    "lakeFS answers 500": _to_the_lake(status=500, times=5),
    "lakeFS answers 429": _to_the_lake(status=429, times=8),
    "lakeFS refuses a merge (409)": _to_the_lake("POST", "/merge/", status=409, times=2),
    "lakeFS merges, and its answer is lost": _to_the_lake("POST", "/merge/", after=True),
    "lakeFS commits, and its answer is lost": _to_the_lake("POST", "/commits", after=True),
    "an object of lakeFS breaks off": _to_the_lake("GET", "/objects", cut=100, times=2),
    "lakeFS is slow": _to_the_lake(delay=1.5, times=6),
    "the key of lakeFS has expired (401)": _to_the_lake(status=401, times=3),
}
ARENAS = {"laptop": LAPTOP, "pods": PODS, "lakefs": LAKEFS}
WANTED = {
    "kill of a command, a supervisor, a rank, a pod": ("the command is killed", "a rank is killed"),
    "stopped processes": ("a rank stops (SIGSTOP)",),
    "loss of a pod, of a node, eviction, a notice": ("a node is cut off", "a pod is preempted"),
    "an API server that is away, slow, or refuses": ("the API server is away for 4 s",),
    "S3 that is away, slow, or refuses": ("the store is away for 4 s",),
    "lakeFS that is away, conflicts, or refuses": ("lakeFS is away for 4 s",),
    "a full disk": ("the disk is full",),
    "clocks that jump": ("the clock goes an hour on", "the clock goes an hour back"),
    "expired tokens": ("the store's token has expired", "the API server's token has expired"),
    "a torn upload": (),
    "a disk that becomes read-only": (),
    "a restart of Postgres": (),
    "kill of the daemon or of the UI's server, two daemons, runs by schedules and sensors": (),
    "a release that races a rollback and a recall": (),
    "an upgrade of the orchestrator in mid-training": (),
    "duplicated and reordered events": (),
    "a real cluster": (),
}
"""What a matrix of faults is to have -> the faults here that are it; what has none is missing."""


def disk_of_its_own(folder: Path) -> Iterator[bool]:
    """Give a folder a small disk while this generator lives, where this machine lets one."""
    folder.mkdir(parents=True, exist_ok=True)
    mounts = shutil.which("mount") is not None and os.geteuid() == 0
    command = ["mount", "-t", "tmpfs", "-o", "size=192m", "none", str(folder)]
    mounted = mounts and not subprocess.run(command, capture_output=True, check=False).returncode
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)
