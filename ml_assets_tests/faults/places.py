"""Where a round happens: a home with its servers, and how its history is read."""

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from ml_assets_tests.faults.history import (
    FAILURES,
    Commit,
    History,
    Json,
    failure,
    read_home,
    refs_of,
    runs_of,
)
from ml_assets_tests.faults.injections import DAEMON, Command, begin
from ml_assets_tests.faults.results import SILENT
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.lakefs import LakeFSServer, lakefs_server
from ml_assets_tests.servers.lakefs.refusals import Collected
from ml_assets_tests.servers.postgres import PostgresServer, postgres_server
from ml_assets_tests.servers.s3 import BUCKET, S3Server, s3_server
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.iris_pods import over_two_pods, world_on
from ml_assets_tests.worlds.lakefs import new_repository
from ml_assets_tests.worlds.world import World, free_ports

LONG = {"epochs": 180}
"""Longer than elsewhere, where a training would be over before a fault finds it."""
HERE = {"hang_timeout_seconds": 4}


def clock_of_its_own(folder: Path) -> dict[str, str]:
    """The environment of processes whose wall clock can jump; empty where there is no compiler."""
    library = folder / "wall_clock.so"
    source = Path(__file__).with_name("wall_clock.c")
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
    if shutil.which("cc") is None or subprocess.run(command, check=False).returncode:
        return {}
    (folder / "clock").write_bytes(bytes(8))
    return {"LD_PRELOAD": str(library), "FAULTS_CLOCK": str(folder / "clock")}


def disk_of_its_own(folder: Path) -> Iterator[bool]:
    """Give a folder a small disk while this generator lives, where this machine lets one."""
    folder.mkdir(parents=True, exist_ok=True)
    mounts = shutil.which("mount") is not None and os.geteuid() == 0
    command = ["mount", "-t", "tmpfs", "-o", "size=192m", "none", str(folder)]
    mounted = mounts and not subprocess.run(command, capture_output=True, check=False).returncode
    try:
        yield mounted
    finally:
        while mounted and folder.is_mount():  # a read-only one may lie over it
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@dataclass(frozen=True)
class Place:
    """Where a round happens."""

    arena: str
    world: World
    cluster: ApiServer | None = None
    store: S3Server | None = None
    lake: LakeFSServer | None = None
    database: PostgresServer | None = None
    serves: bool = False
    """Its command is a daemon, or a UI with one: sensors ask for what is due, and nobody else."""

    def begin(self) -> Command:
        if self.database is not None:
            return begin(self.world, "-m", "ml_assets.definitions", program=DAEMON)
        return begin(self.world, *(("ui",) if self.serves else ("run", "irises")))

    def made(self) -> bool:
        """Whether each pipeline has a model in production, and no run of Dagster's is under way."""
        ended = {"SUCCESS", "FAILURE", "CANCELED"}
        if not {*self.runs().values()} <= ended:
            return False
        ledgers = read_home(self.world.root / "state").ledgers
        asked = [folder.name for folder in self.world.pipelines.iterdir()]
        return all(any(ln["kind"] == "stage" for ln in ledgers.get(one, ())) for one in asked)

    def published(self) -> tuple[str, ...]:
        """The messages of the states of ``main`` so far, oldest first."""
        if self.lake is not None:
            return tuple(commit.message for _, commit in log_of(self.lake))
        home = self.world.root / "state"
        return _messages(home, refs_of(home).get("main", ("", ""))[1])

    def runs(self) -> dict[str, str]:
        """Dagster's runs -> their status; while its database is away, those that it had are asked
        for again."""
        if self.database is None:
            return runs_of(self.world.root / "state")
        return dict(self.database.query("select run_id, status from runs"))

    def outputs(self) -> list[Path]:
        """What each command printed, oldest first."""
        return sorted(self.world.root.glob("said-*"))

    def said(self) -> list[str]:
        return [file.read_text(errors="replace") for file in self.outputs()]

    def history(self, *, at_end: bool = False) -> History:
        """What happened so far; at the end also what was left on servers, which must answer."""
        home = self.world.root / "state"
        said = tuple(_of_ours(text) if self.serves else text for text in self.said())
        found = read_home(home, self._model if self.store else None, said)
        found = replace(
            found, runs=self.runs(), remote=tuple(self.left_on_servers() if at_end else ())
        )
        if self.database is not None:
            events = self.database.query(FAILURES)
            found = replace(found, failures=tuple(failure(event) for (event,) in events))
        return found if self.lake is None else of_lakefs(self.lake, found)

    def _model(self, digest: str, name: str) -> bytes | None:
        assert self.store is not None
        with contextlib.suppress(self.store.client.exceptions.NoSuchKey):
            key = f"state/models/{digest}/{name}"
            return self.store.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return None

    def waits_for_mlflow(self) -> bool:
        """Whether MLflow was not told of a training: the next command does that."""
        return not self.serves and any((self.world.root / "state/mlflow_outbox").glob("*.json"))

    def calm(self) -> None:
        """End what still strikes a store: whoever looks at it would meet it."""
        if self.store is not None:
            self.store.faults.failing, self.store.faults.torn = 0, {}
            if self.store.faults.held:
                self.store.faults.held.set()
        if self.lake is not None:
            self.lake.faults.clear()

    def collect(self) -> None:
        """Delete what killed processes left, as garbage collection does a day later."""
        late = {"ML_ASSETS_RETENTION": "grace=0d scratch=0d", "FAULTS_CLOCK": ""}
        extra = {**self.world.extra, **late}  # by a clock that was put back, all is too young
        World(self.world.root, extra).streams("ops", "gc")

    def keep(self) -> None:
        """Keep the state of a round that broke, where its disk goes with it."""
        state = self.world.root / "state"
        if state.is_mount():
            shutil.copytree(state, self.world.root / "state-kept", symlinks=True)

    def left_on_servers(self) -> list[str]:
        """The pods and Jobs that still work, for Kubernetes deletes those that ended a while later;
        and uploads that nobody completes or takes back."""
        kinds = {"pod": self.cluster.pods(), "Job": self.cluster.jobs()} if self.cluster else {}
        left = [
            f"the {kind} {one['metadata']['name']}"
            for kind, found in kinds.items()
            for one in found
            if not _ended(one["status"])
        ]
        if self.store is not None:
            uploads = self.store.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())
            left += [f"the upload of {one['Key']}" for one in uploads]
        return [f"{one} was left behind" for one in left]


def _ended(status: Json) -> bool:
    """Whether a pod or a Job has come to its end, by its phase or its conditions."""
    true = {one["type"] for one in status.get("conditions", ()) if one["status"] == "True"}
    return status.get("phase") in ("Succeeded", "Failed") or bool(true & {"Complete", "Failed"})


def _of_ours(text: str) -> str:
    """What a server printed before Dagster's own log began, which has stacks, or all of it."""
    before, log, _ = text.partition(DAGSTERS_LOG)
    return f"{before.rpartition(chr(10))[0]}\n{SILENT}" if log else text


@lru_cache(maxsize=8)
def _messages(home: Path, head: str) -> tuple[str, ...]:
    """Of a home whose newest state is this one: each is read once."""
    return tuple(commit.message for commit in read_home(home).commits) if head else ()


@contextmanager
def laptop(folder: Path) -> Iterator[Place]:
    """A home with an embedded store, on a disk of its own where that can be had."""
    folder.mkdir(parents=True)
    world = World(folder, clock_of_its_own(folder)).plant(irises)
    over_two_pods(world, **HERE)
    with contextmanager(disk_of_its_own)(folder / "state"):
        yield Place("laptop", world)


@contextmanager
def pods(folder: Path) -> Iterator[Place]:
    """A home whose training runs in two pods, with its objects on S3."""
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as store, ApiServer() as server:
        folder.mkdir(parents=True)
        world = world_on(store, server, folder)
        over_two_pods(world, **LONG)
        place = Place("pods", world, server, store)
        try:
            yield place
        finally:
            place.calm()
            server.end_cut_off()


@contextmanager
def lakefs(folder: Path) -> Iterator[Place]:
    """A home whose tables, records and ledger are on a lakeFS server."""
    with lakefs_server() as server:
        folder.mkdir(parents=True)
        world = World(folder, new_repository(server, folder / "state")).plant(irises)
        over_two_pods(world, **HERE)
        try:
            yield Place("lakefs", world, lake=server)
        finally:
            server.faults.clear()


def log_of(server: LakeFSServer) -> list[tuple[str, Any]]:
    """Id and commit of the states of ``main`` by their first parents, oldest first."""
    (repository,) = server.catalog.repositories.values()
    with repository.lock:
        at: str | None = repository.branches["main"].commit
        commits = dict(repository.commits)
    found = []
    while at is not None:
        found.append((at, commits[at]))
        at = next(iter(commits[at].parents), None)
    return found[::-1]


def of_lakefs(server: LakeFSServer, home: History) -> History:
    """The history of a home whose states are commits of a server: each has a list of its files.

    A branch of a step that was killed, or could not reach the server, is an orphan: garbage
    collection deletes it a day later.
    """
    (repository,) = server.catalog.repositories.values()
    get = server.catalog.store.get
    found: list[Commit] = []
    where: dict[str, str | None] = {}  # by digest; None: a state lists it, and it is not there
    for at, commit in log_of(server):
        listed = commit.tree.get("_ml_assets/manifest.json")
        state = json.loads(get(listed.address))["state"] if listed else {"tree": {}, "run_key": ""}
        tree = {path: digest for path, (digest, _) in state["tree"].items()}
        for path, digest in tree.items():
            entry = commit.tree.get(path)
            if entry is None or not lies_there(server, entry.address):
                where[digest] = None
            where.setdefault(digest, entry.address if entry else None)
        found.append(Commit(at, commit.message, state["run_key"], tree))

    def read(digest: str) -> bytes | None:
        address = where.get(digest)
        return get(address) if address else None

    with repository.lock:
        names = [*repository.branches]
    kinds = {"ml-assets-keep-": "kept", "ml-assets-work-": "orphan"}
    refs = {n: next((kinds[k] for k in kinds if n.startswith(k)), "branch") for n in names}
    return replace(home, commits=tuple(found), refs=refs, read=read)


def lies_there(server: LakeFSServer, address: str) -> bool:
    try:
        server.catalog.store.get(address)
    except Collected:
        return False
    return True


@cache
def _released_twice(folder: Path) -> Path:
    """A world with two releases of the irises, made once in a campaign."""
    shutil.rmtree(folder / "released-twice", ignore_errors=True)  # of a try that failed
    world = World(folder / "released-twice").plant(irises)
    over_two_pods(world, **HERE)
    file = world.pipelines / "irises" / "defs.yaml"
    spec = yaml.safe_load(file.read_text())
    gates = spec["attributes"]["gates"]  # who is champion is what the round draws
    spec["attributes"]["gates"] = [gate for gate in gates if gate["kind"] != "champion"]
    file.write_text(yaml.safe_dump(spec, sort_keys=False))
    for species in ("setosa", "versicolor"):
        irises.write_flowers(world.sources, species)
        assert begin(world, "run", "irises").wait(1200) == 0  # however busy the machine is
    for said in world.root.glob("said-*"):
        said.unlink()
    return world.root


@contextmanager
def moves(folder: Path) -> Iterator[Place]:
    """A home with two releases, and data for a third one."""
    shutil.copytree(_released_twice(folder.parent), folder)
    world = World(folder)
    irises.write_flowers(world.sources, "virginica")
    yield Place("moves", world)


def _by_itself(world: World, **automation: dict[str, Any]) -> World:
    """A world whose pipelines have these automations; all are of the same flowers."""
    first = world.pipelines / "irises"
    for name, what in automation.items():
        if name != first.name:
            shutil.copytree(first, world.pipelines / name)
        file = world.pipelines / name / "defs.yaml"
        spec = yaml.safe_load(file.read_text())
        spec["attributes"] |= {"name": name, "automation": what}
        file.write_text(yaml.safe_dump(spec, sort_keys=False))
    return world


@contextmanager
def served(folder: Path) -> Iterator[Place]:
    """The UI of a home with two pipelines: what lands is learned at once, or by a schedule."""
    urls = [f"http://127.0.0.1:{port}" for port in free_ports(3)]
    world = World(folder, dict(zip(ADDRESSES, urls, strict=True))).plant(irises)
    over_two_pods(world, **HERE)
    _by_itself(
        world,
        lilies={"landing": {"retrain": True}},
        irises={"landing": {}, "refresh": {"cron": "* * * * *"}},
    )
    yield Place("served", world, serves=True)


@contextmanager
def on_postgres(folder: Path) -> Iterator[Place]:
    """Dagster's daemon with its history on Postgres, as it is set up for a cluster."""
    with postgres_server() as server:
        world = World(folder, _daemon_of_a_cluster(folder, server)).plant(irises)
        over_two_pods(world, **HERE, **LONG)
        _by_itself(world, irises=AS_IT_LANDS)
        yield Place("postgres", world, database=server, serves=True)


@contextmanager
def cluster(folder: Path) -> Iterator[Place]:
    """That daemon, whose training runs in two pods, with its objects on S3."""
    with postgres_server() as server, pods(folder) as place:
        extra = {**place.world.extra, **_daemon_of_a_cluster(folder, server)}
        world = _by_itself(World(folder, extra), irises=AS_IT_LANDS)
        yield replace(place, arena="cluster", world=world, database=server, serves=True)


def _daemon_of_a_cluster(folder: Path, server: PostgresServer) -> dict[str, str]:
    """The environment of a daemon with the settings of a cluster, but for what starts its runs."""
    dagster = folder / "dagster"
    dagster.mkdir(parents=True)
    configuration = yaml.safe_load(PRODUCTION.read_text())
    for of_a_cluster in ("run_launcher", "compute_logs"):
        del configuration[of_a_cluster]
    (dagster / "dagster.yaml").write_text(yaml.safe_dump(configuration))
    names = ("HOST", "PORT", "DB", "USERNAME", "PASSWORD")
    given = {f"DAGSTER_PG_{n}": str(v) for n, v in zip(names, server.place, strict=True)}
    return {"DAGSTER_HOME": str(dagster), **given}


AS_IT_LANDS = {"landing": {"retrain": True}}
PRODUCTION = Path(__file__).parents[2] / "deploy" / "dagster" / "dagster.yaml"
ADDRESSES = ("ML_ASSETS_UI_URL", "ML_ASSETS_REPORTS_URL", "ML_ASSETS_MLFLOW_URL")
DAGSTERS_LOG = " - dagster"
"""In each line of Dagster's own log; that of a daemon is no word of ours to people."""
PLACES = {
    "laptop": laptop,
    "pods": pods,
    "lakefs": lakefs,
    "moves": moves,
    "served": served,
    "postgres": on_postgres,
    "cluster": cluster,
}


def settled(place: Place, seconds: float = 180) -> History:
    """The history once what ends by itself has ended, or after this time.

    A code location of Dagster's ends twenty seconds after its last sign of life from a daemon, and
    once the runs that it began have ended.
    """
    until = time.monotonic() + seconds
    while True:
        history = place.history(at_end=True)
        quiet = not history.processes and not history.remote
        if quiet or time.monotonic() > until:
            return history
        time.sleep(0.2)
