"""The faults: each does one harm to a piece of work that is under way, and says what it did."""

import ast
import errno
import json
import random
import shutil
import signal
import struct
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import psutil

import ml_assets
from ml_assets_tests.faults.history import of_sessions, read_home
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.lakefs import LakeFSServer
from ml_assets_tests.servers.postgres import PostgresServer
from ml_assets_tests.servers.s3 import S3Server
from ml_assets_tests.worlds.processes import below
from ml_assets_tests.worlds.world import World

ML_ASSETS = (sys.executable, "-m", "ml_assets.cli.main")
_LATELY = 1.0
"""Seconds."""
_PATIENCE_IN_STEPS = 300.0
"""Seconds that a rank waits for another at most, before the first step and after it."""
DAEMON = (str(Path(sysconfig.get_path("scripts"), "dagster-daemon")), "run")


class Command(psutil.Popen):
    """A command of its own session, whose output lies in a file of the world."""

    def __init__(self, world: World, program: Sequence[str], *arguments: str) -> None:
        self.arguments = arguments
        self.begun = time.monotonic()
        self.said = world.root / f"said-{len([*world.root.glob('said-*')]):03}"
        with self.said.open("wb") as said:
            super().__init__(
                [*program, *arguments],
                env=world.environment,
                cwd=world.root,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


@dataclass(frozen=True)
class Work:
    """A command under way in a world, with the servers that it uses."""

    world: World
    command: Command
    draw: random.Random
    cluster: ApiServer | None = None
    store: S3Server | None = None
    lake: LakeFSServer | None = None
    database: PostgresServer | None = None
    others: list[Command] = field(default_factory=list)
    """Commands that faults began beside it."""
    broken: list[str] = field(default_factory=list)
    """What a fault itself saw that must not be."""
    made: Callable[[], bool] | None = None
    """Whether the work of a command that serves, and never ends by itself, is done."""

    heard: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Server -> its requests so far, and when the last one was seen."""

    def listen(self) -> None:
        """Take note of which servers are asked."""
        stores = {"store": self.store, "lake": self.lake}
        requests = {name: len(one.faults.requests) for name, one in stores.items() if one}
        requests |= {"cluster": len(self.cluster.calls)} if self.cluster else {}
        for name, count in requests.items():
            if count != self.heard.get(name, (0, 0.0))[0]:
                self.heard[name] = count, time.monotonic()

    def asked_lately(self, server: str) -> bool:
        """Whether a fault of a server would hit a request soon, as far as one can tell."""
        return server in self.heard and time.monotonic() - self.heard[server][1] < _LATELY

    def over(self) -> bool:
        return self.command.poll() is not None or bool(self.made and self.made())

    def same_work(self) -> list[Command]:
        """The other commands under way that do the same work."""
        same = ("run", "irises")
        return [one for one in self.others if one.poll() is None and one.arguments == same]

    def processes(self, *words: str) -> list[psutil.Process]:
        """Processes below the command whose command line has all these words."""
        return below(self.command.pid, *words)


@dataclass(frozen=True)
class Harm:
    """A fault that was done: it counts once it has hit something, and lasts until it is over."""

    hit: Callable[[], bool] = lambda: True
    over: Callable[[], bool] = lambda: True
    end: Callable[[], object] = lambda: None
    """Takes away what is left of it."""


Fault = Callable[[Work], Harm | bool]
"""False: what it harms is not there now."""


def lasting(seconds: float) -> Harm:
    until = time.monotonic() + seconds
    return Harm(over=lambda: time.monotonic() > until)


def at_work() -> str:
    """What still works below this process, with the stacks of Python's where py-spy is there."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found.append(f"{process.pid} {process.status()} {' '.join(process.cmdline())}")
        if shutil.which("py-spy"):
            dump = ["py-spy", "dump", "--nonblocking", "--pid", str(process.pid)]
            done = subprocess.run(dump, capture_output=True, text=True, timeout=60, check=False)
            found.append(done.stdout)
    return "\n".join(found)


def name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:  # it ended meanwhile
        return ""


# --- processes of this machine --------------------------------------------------------------------


def ranks(work: Work) -> list[psutil.Process]:
    """The processes that train; empty before they began."""
    return [one for one in work.processes("ml_assets.training") if name(one).startswith("rank")]


def kill_torchrun(work: Work) -> bool:
    found = work.processes("ml_assets.training.elastic")  # its forks have its command line
    agents = [one for one in found if name(one) == "pt_elastic"]
    return bool(agents) and send(work.draw.choice(agents), signal.SIGKILL)


def to_a_rank(number: signal.Signals) -> Fault:
    def strike(work: Work) -> bool:
        found = ranks(work)
        if len(found) < 2:
            return False
        return send(work.draw.choice(found), number)

    return strike


def stop_a_rank(work: Work) -> bool:
    return in_their_steps(work) and to_a_rank(signal.SIGSTOP)(work) is True


def in_their_steps(work: Work) -> bool:
    """Whether two ranks take steps: while a state is read, the others of one that stands still wait
    two hours for it, as documented, and so does the launcher for one that is alone."""
    beats = of_sessions(work.world.root / "state", "*/attempts/*/heartbeat.*.json")
    with suppress(OSError, ValueError):
        newest = sorted(beats, key=lambda file: file.stat().st_mtime)[-2:]
        patience = [json.loads(file.read_bytes())["patience"] for file in newest]
        return len(patience) == 2 and max(patience) <= _PATIENCE_IN_STEPS
    return False


def to_process(number: signal.Signals, *words: str) -> Fault:
    def strike(work: Work) -> bool:
        found = work.processes(*words)
        return bool(found) and send(work.draw.choice(found), number)

    return strike


def to_the_command(number: signal.Signals) -> Fault:
    return lambda work: send(work.command, number)


def send(process: psutil.Process, number: signal.Signals) -> bool:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True


def stands_still(*words: str) -> Fault:
    """A process that has all these words, or without any the command, stops for ten seconds."""

    def strike(work: Work) -> Harm | bool:
        found = work.processes(*words) if words else [work.command]
        return bool(found) and stopped(work.draw.choice(found))

    return strike


def stopped(*processes: psutil.Process, seconds: float = 10) -> Harm | bool:
    """SIGSTOP, and SIGCONT so many seconds later."""
    hit = [process for process in processes if send(process, signal.SIGSTOP)]
    for process in hit:
        later(seconds, lambda process=process: send(process, signal.SIGCONT))
    return lasting(seconds) if hit else False


def machine_lost(work: Work) -> bool:
    """The command and all below it, at one moment."""
    for process in [work.command, *below(work.command.pid)]:
        send(process, signal.SIGKILL)
    return True


def second_command(work: Work) -> bool:
    """Somebody asks for the same at the same time."""
    work.others.append(begin(work.world, "run", "irises"))
    return True


def begin(world: World, *arguments: str, program: Sequence[str] = ML_ASSETS) -> Command:
    return Command(world, program, *arguments)


def upgraded(*changed: str) -> Fault:
    """In mid-training the command ends, and the next one is of a version with other code.

    Args:
        changed: modules of the package, or folders of them.
    """

    def strike(work: Work) -> bool:
        if not ranks(work) and not (work.cluster and work.cluster.pods()):
            return False
        package = work.world.root / "next" / "ml_assets"
        if not package.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(Path(ml_assets.__path__[0]), package, ignore=ignored)
        for name in changed:
            for module in (
                [package / name] if name.endswith(".py") else (package / name).rglob("*.py")
            ):
                _change(module)
        cast("dict[str, str]", work.world.extra)["PYTHONPATH"] = str(package.parent)
        return send(work.command, signal.SIGTERM)

    return strike


def _change(module: Path) -> None:
    """Give all functions of a module other code, which makes the same."""
    tree = ast.parse(module.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body.append(ast.Pass())
    module.write_text(ast.unparse(tree))


def landed_again(work: Work) -> bool:
    """The source is written again, with the rows that it had."""
    for file in work.world.sources.glob("*.csv"):
        again = file.with_suffix(".part")
        shutil.copyfile(file, again)
        again.replace(file)
    return True


# --- other people ---------------------------------------------------------------------------------


def rolled_back(work: Work) -> bool:
    """Somebody puts the model of before back."""
    work.others.append(begin(work.world, "release", "rollback", "irises", *_SIGNED))
    return True


def recalled_and_lifted(work: Work) -> Harm:
    """Somebody takes the oldest data back, sees that it was sound, and takes that back."""
    person = threading.Thread(target=_recall_and_lift, args=[work], daemon=True)
    person.start()
    return Harm(over=lambda: not person.is_alive())


def _recall_and_lift(work: Work) -> None:
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


_SIGNED = ("--author", "ann", "--reason", "complaints")


def both_at_once(work: Work) -> Harm:
    """A rollback to a model that is being recalled."""
    rolled_back(work)
    return recalled_and_lifted(work)


def later(seconds: float, do: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()


# --- files ----------------------------------------------------------------------------------------


def damaged_checkpoint(work: Work) -> Harm | bool:
    """A byte of the newest checkpoint flips, and a rank dies: the one before it has to do."""
    if len(ranks(work)) < 2:
        return False
    saved = work.world.root.glob("state/objects/sessions/*-train-*/checkpoints/*/manifest.json")
    try:
        newest = max(saved, key=lambda file: file.stat().st_mtime).parent
        file = next(iter(sorted(newest.glob("*.distcp"))))
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    except (ValueError, OSError, StopIteration):
        return False
    return to_a_rank(signal.SIGKILL)(work)


def full_disk(work: Work) -> Harm | bool:
    """The disk of the home is full for two seconds; it has to be a disk of its own."""
    state = work.world.root / "state"
    if not state.is_mount():
        return False
    filler = state / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:  # it may be read-only
        for size in (1 << 22, 1 << 16, 1 << 12):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    if not filler.exists():
        return False
    later(2, lambda: _delete(filler))
    return Harm(over=lambda: not filler.exists())


def _delete(file: Path) -> None:
    """Delete a file; the disk that it fills may be read-only for a while."""
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        later(0.5, lambda: _delete(file))


def read_only_disk(work: Work) -> Harm | bool:
    """Whatever opens a file of the home in these three seconds finds its disk read-only.

    Files that are open stay so: a mount over the home does it, for root passes by its modes.
    """
    state = str(work.world.root / "state")
    if not Path(state).is_mount():
        return False
    if subprocess.run(["mount", "--bind", state, state], check=False).returncode:
        return False
    if subprocess.run(["mount", "-o", "remount,ro,bind", state], check=False).returncode:
        subprocess.run(["umount", "--lazy", state], check=True)  # somebody writes there already
        return False
    later(3, lambda: subprocess.run(["umount", "--lazy", state], check=True))
    return lasting(3.5)


# --- clocks ---------------------------------------------------------------------------------------


def clock_jumps(seconds: int) -> Fault:
    def strike(work: Work) -> bool:
        if "FAULTS_CLOCK" not in work.world.extra:
            return False
        clock = Path(work.world.extra["FAULTS_CLOCK"])
        with clock.open("r+b") as mapped:
            (moved,) = struct.unpack("l", mapped.read(8))
            mapped.seek(0)
            mapped.write(struct.pack("l", moved + seconds))
        return True

    return strike
