"""One round: a pipeline runs to its release while faults strike, and is held to the invariants."""

import contextlib
import json
import random
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

from ml_assets_tests.faults.history import Commit, History, read_home, violations
from ml_assets_tests.faults.injections import (
    ARENAS,
    Work,
    begin,
    below,
    clock_of_its_own,
    disk_of_its_own,
)
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.lakefs import LakeFSServer, lakefs_server
from ml_assets_tests.servers.lakefs.refusals import Collected
from ml_assets_tests.servers.s3 import BUCKET, S3Server, s3_server
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.iris_pods import over_two_pods, world_on
from ml_assets_tests.worlds.lakefs import new_repository
from ml_assets_tests.worlds.world import World

ASKED_AT_MOST = 8
"""Times that the command is given: a person, or a schedule, gives it again."""
PATIENCE = 300.0
"""Seconds that one command may take."""
_EXPLAINS = re.compile(
    r"\b(lost|killed|died|dead|interrupted|started again|resumes?|cannot be|refused|no space"
    r"|stopped|signal|full|evicted|preempted|another command|is away|already)\b"
)
_MEASURED = {"latency", "throughput", "memory"}
"""Gates whose values are those of the machine, at that moment."""


@dataclass
class Strike:
    """One fault that struck."""

    fault: str
    arena: str
    seed: int
    at: float
    """Seconds after the command that it struck was begun."""
    together: int = 1
    """Faults that struck in this round."""
    seconds: float | None = None
    """That the round took longer than an undisturbed one; None where several struck."""
    broken: list[str] = field(default_factory=list)
    """What did not hold at the end of its round."""
    seen: str = ""
    """The sentence that people were shown."""


@dataclass(frozen=True)
class Place:
    """Where a round happens."""

    arena: str
    world: World
    cluster: ApiServer | None = None
    store: S3Server | None = None
    lake: LakeFSServer | None = None

    def said(self) -> list[str]:
        """What each command printed, oldest first."""
        files = sorted(self.world.root.glob("said-*"))
        return [file.read_text(errors="replace") for file in files]

    def note(self, why: str) -> None:
        """Why the last command said nothing, where nobody could expect a word."""
        sorted(self.world.root.glob("said-*"))[-1].write_text(f"({why})\n")

    def history(self) -> History:
        home = self.world.root / "state"
        found = read_home(home, self._model if self.store else None, tuple(self.said()))
        return found if self.lake is None else of_lakefs(self.lake, found)

    def _model(self, digest: str, name: str) -> bytes | None:
        assert self.store is not None
        with contextlib.suppress(self.store.client.exceptions.NoSuchKey):
            key = f"state/models/{digest}/{name}"
            return self.store.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return None

    def left_in_cluster(self) -> list[str]:
        names = [pod["metadata"]["name"] for pod in self.cluster.pods()] if self.cluster else []
        return [f"the pod {name} was left behind" for name in names]


@contextmanager
def laptop(folder: Path) -> Iterator[Place]:
    """A home with an embedded store, on a disk of its own where that can be had."""
    folder.mkdir(parents=True)
    world = World(folder, clock_of_its_own(folder))
    irises.plant(world.pipelines, world.sources)
    over_two_pods(world, hang_timeout_seconds=4)
    with contextmanager(disk_of_its_own)(folder / "state"):
        yield Place("laptop", world)


@contextmanager
def pods(folder: Path) -> Iterator[Place]:
    """A home whose training runs in two pods, with its objects on S3."""
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as store, ApiServer() as server:
        folder.mkdir(parents=True)
        world = world_on(store, server, folder)
        over_two_pods(world)
        try:
            yield Place("pods", world, server, store)
        finally:
            store.faults.failing = 0
            if store.faults.held:
                store.faults.held.set()
            server.end_cut_off()


@contextmanager
def lakefs(folder: Path) -> Iterator[Place]:
    """A home whose tables, records and ledger are on a lakeFS server."""
    with lakefs_server() as server:
        folder.mkdir(parents=True)
        world = World(folder, new_repository(server, folder / "state"))
        irises.plant(world.pipelines, world.sources)
        over_two_pods(world, hang_timeout_seconds=4)
        try:
            yield Place("lakefs", world, lake=server)
        finally:
            server.faults.clear()


def of_lakefs(server: LakeFSServer, home: History) -> History:
    """The history of a home whose states are commits of a server: each has a list of its files."""
    (repository,) = server.catalog.repositories.values()
    get = server.catalog.store.get
    with repository.lock:
        heads = {name: branch.commit for name, branch in repository.branches.items()}
        commits = dict(repository.commits)
    found: list[Commit] = []
    where: dict[str, str | None] = {}  # by digest; None: a state lists it, and it is not there
    at: str | None = heads["main"]
    while at is not None:
        commit = commits[at]
        listed = commit.tree.get("_ml_assets/manifest.json")
        state = json.loads(get(listed.address))["state"] if listed else {"tree": {}, "run_key": ""}
        tree = {path: digest for path, (digest, _) in state["tree"].items()}
        for path, digest in tree.items():
            entry = commit.tree.get(path)
            if entry is None or not lies_there(server, entry.address):
                where[digest] = None
            where.setdefault(digest, entry.address if entry else None)
        found.append(Commit(at, commit.message, state["run_key"], tree))
        at = next(iter(commit.parents), None)

    def read(digest: str) -> bytes | None:
        address = where.get(digest)
        return get(address) if address else None

    refs = {n: "kept" if n.startswith("ml-assets-keep-") else "branch" for n in heads}
    return replace(home, commits=tuple(found[::-1]), refs=refs, read=read)


def lies_there(server: LakeFSServer, address: str) -> bool:
    try:
        server.catalog.store.get(address)
    except Collected:
        return False
    return True


PLACES = {"laptop": laptop, "pods": pods, "lakefs": lakefs}


@dataclass(frozen=True)
class Undisturbed:
    """What comes of the work when nothing strikes, and how long it takes."""

    result: dict[str, Any]
    seconds: float


@cache
def undisturbed(arena: str, folder: Path) -> Undisturbed:
    """The measure of a round: made once.

    Raises:
        AssertionError: the work fails by itself.
    """
    with PLACES[arena](folder / f"undisturbed-{arena}") as place:
        began = time.monotonic()
        command = begin(place.world, "run", "irises")
        assert command.wait(PATIENCE) == 0, place.said()[-1][-3000:]
        found = violations(place.history())
        assert found == [], found
        return Undisturbed(result(place.history()), time.monotonic() - began)


def result(history: History) -> dict[str, Any]:
    """What is the same however it was reached: versions of the data, the model, the gates."""
    versions = {
        path: history.file(path)["data_version"]
        for path in history.below("records/")
        if path.split("/")[2] not in ("evaluation_report", "released_model", "checkpoints")
    }
    decided = [line["decision"]["gates"] for line in history.ledgers["irises"] if line["decision"]]
    gates = [
        {
            gate["name"]: (gate["value"], gate["passed"])
            for gate in each
            if gate["name"] not in _MEASURED
        }
        for each in decided
    ]
    return {"versions": versions, "gates": gates}


def play(arena: str, seed: int, folder: Path, only: str | None = None) -> list[Strike]:
    """One round; the faults and their moments are drawn by the seed.

    Args:
        folder: for this campaign; the round's own is deleted when nothing broke.
        only: the one fault to draw, where somebody looks for it.
    """
    measure = undisturbed(arena, folder)
    draw = random.Random(f"{arena} {seed}")
    names = [only] if only else draw.sample(sorted(ARENAS[arena]), draw.choice([1, 1, 2, 3]))
    moments = sorted(draw.uniform(0, measure.seconds) for _ in names)
    place_folder = folder / f"{arena}-{seed}"
    with PLACES[arena](place_folder) as place:
        began = time.monotonic()
        struck = _ask_until_released(place, draw, list(zip(moments, names, strict=True)), seed)
        took = time.monotonic() - began
        broken = _broken(place, measure)
    for strike in struck:
        strike.together = len(struck)
        strike.broken = [*strike.broken, *broken]
        strike.seconds = max(0.0, took - measure.seconds) if len(struck) == 1 else None
    if not any(strike.broken for strike in struck):
        shutil.rmtree(place_folder, ignore_errors=True)
    return struck


def _broken(place: Place, measure: Undisturbed) -> list[str]:
    history = _settled(place)
    found = [f"{name}: {what}" for name, what in violations(history)] + place.left_in_cluster()
    try:
        if result(history) != measure.result:
            found.append("the result is not that of an undisturbed run")
    except LookupError:
        found.append("nothing was released")
    return found


def _settled(place: Place, seconds: float = 20) -> History:
    """The history once what ends by itself has ended, or after this time."""
    until = time.monotonic() + seconds
    while True:
        history = place.history()
        quiet = not history.processes and not place.left_in_cluster()
        if quiet or time.monotonic() > until:
            return history
        time.sleep(0.5)


def _ask_until_released(
    place: Place, draw: random.Random, planned: list[tuple[float, str]], seed: int
) -> list[Strike]:
    """Give the command until it ends well; the faults strike on the way."""
    struck: list[Strike] = []
    said = ""
    for _ in range(ASKED_AT_MOST):
        work = Work(
            place.world,
            begin(place.world, "run", "irises"),
            draw,
            place.cluster,
            place.store,
            place.lake,
        )
        now = _strike(work, place.arena, planned, seed)
        code = _end(work)
        planned = planned[len(now) :]
        said = place.said()[-1]
        if code == -signal.SIGKILL and not said:
            place.note("killed before it said a word")
        for strike in now:
            strike.seen = _sentence(said)
        half = violations(place.history(), midway=True)
        struck += now
        if half and struck:
            struck[-1].broken += [f"{name}: {what}" for name, what in half]
        if code == 0:
            return struck
    if struck:
        struck[-1].broken.append(f"{ASKED_AT_MOST} commands did not release a model: {said[-300:]}")
    return struck


def _strike(work: Work, arena: str, planned: list[tuple[float, str]], seed: int) -> list[Strike]:
    """Strike each fault at its moment, or as soon as there is what it harms."""
    began, struck = time.monotonic(), []
    for moment, name in planned:
        while not work.over() and time.monotonic() - began < PATIENCE:
            passed = time.monotonic() - began
            if passed >= moment and ARENAS[arena][name](work):
                struck.append(Strike(name, arena, seed, round(passed, 2)))
                break
            time.sleep(0.05)
        else:
            return struck
    return struck


def _end(work: Work) -> int:
    """Wait for the command and those beside it; what works for too long is killed."""
    codes = []
    for command in [work.command, *work.others]:
        try:
            codes.append(command.wait(PATIENCE))
        except psutil.TimeoutExpired:
            for process in [command, *below(command)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            codes.append(command.wait())
    return codes[0]


def _sentence(said: str) -> str:
    """The last line that explains it; empty where people had to be told nothing."""
    lines = [line.strip() for line in said.splitlines()]
    shown = (line for line in lines if not line.startswith(("[pass]", ">", "warning: overfitting")))
    return ([line for line in shown if _EXPLAINS.search(line)] or [""])[-1][:300]


def remember(file: Path, struck: list[Strike]) -> None:
    """Append what struck to a file of results, a line each."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as results:
        results.writelines(json.dumps(vars(strike)) + "\n" for strike in struck)


def recall(file: Path) -> list[Strike]:
    return [Strike(**json.loads(line)) for line in file.read_text().splitlines()]
