"""The faults: each does one harm to a piece of work that is under way, and says what it did."""

import json
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

from ml_assets_tests.faults.history import read_home
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


def kill_torchrun(work: Work) -> bool:
    found = work.processes("ml_assets.training.elastic")  # its forks have its command line
    agents = [one for one in found if name(one) == "pt_elastic"]
    return bool(agents) and _send(work.draw.choice(agents), signal.SIGKILL)


def to_a_rank(number: signal.Signals) -> Fault:
    def send(work: Work) -> bool:
        ranks = _ranks(work)
        if len(ranks) < 2:
            return False
        return _send(work.draw.choice(ranks), number)

    return send


def to_process(number: signal.Signals, *words: str) -> Fault:
    def send(work: Work) -> bool:
        found = work.processes(*words)
        return bool(found) and _send(work.draw.choice(found), number)

    return send


def to_the_command(number: signal.Signals) -> Fault:
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


# --- other people ---------------------------------------------------------------------------------


def rolled_back(work: Work) -> bool:
    """Somebody puts the model of before back."""
    work.others.append(begin(work.world, "release", "rollback", "irises", *_SIGNED))
    return True


def recalled_and_lifted(work: Work) -> bool:
    """Somebody takes the oldest data back, sees that it was sound, and takes that back."""
    home = work.world.root / "state"
    commits = read_home(home).commits
    records = [p for c in commits for p in c.tree if p.startswith("records/irises/raw_snapshot/")]
    oldest = next(commit for commit in commits if records[0] in commit.tree)
    content = read_home(home).read(oldest.tree[records[0]])
    version = json.loads(content or b"")["data_version"]
    begin(work.world, "data", "recall", version, *_SIGNED).wait(60)
    history = read_home(home)
    for name in history.file("recalls/active.json")["ids"] if history.below("recalls/") else ():
        work.others.append(begin(work.world, "data", "recall", "--lift", name, *_SIGNED))
    return True


_SIGNED = ("--author", "ann", "--reason", "complaints")


def both_at_once(work: Work) -> bool:
    """A rollback to a model that is being recalled."""
    return rolled_back(work) and recalled_and_lifted(work)


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
    return to_a_rank(signal.SIGKILL)(work)


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


def read_only_disk(work: Work) -> bool:
    """Whatever opens a file of the home in these three seconds finds its disk read-only.

    Files that are open stay so: a mount over the home does it, for root passes by its modes.
    """
    state = str(work.world.root / "state")
    if not Path(state).is_mount():
        return False
    if subprocess.run(["mount", "--bind", state, state], check=False).returncode:
        return False
    subprocess.run(["mount", "-o", "remount,ro,bind", state], check=True)
    _later(3, lambda: subprocess.run(["umount", "--lazy", state], check=True))
    return True


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


def clock_jumps(seconds: int) -> Fault:
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
        _send(psutil.Process(pid), signal.SIGKILL)


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
    _later(6, lambda: setattr(faults, "bytes_per_second", 0.0))
    return True


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
    _later(4, lambda: planned.remove(fault))
    return True


def _later(seconds: float, do: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()
