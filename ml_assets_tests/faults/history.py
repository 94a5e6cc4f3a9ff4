"""What happened, read from the outside: files, two SQLite databases, the processes of this machine.

Nothing here imports the product: it reads as anybody could read.
"""

import json
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Commit:
    """One state of the data: a point of ``main``."""

    id: str
    message: str
    run_key: str
    """What was asked for: the same work has the same key."""
    tree: Mapping[str, str]
    """Path -> SHA-256 of the file."""


@dataclass(frozen=True)
class Failure:
    """What Dagster kept of a step that failed, and shows to people."""

    step: str
    error: str
    """The class of the error that caused all others."""
    told: str
    """The sentences that the step itself gave for it; empty: nobody wrote any."""
    ours: bool = True
    """Whether code of this package was at work; Dagster reads its own database between steps."""


@dataclass(frozen=True)
class History:
    """A home as it lies there, and what the commands that worked in it said.

    Args:
        commits: ``main``, oldest first.
        refs: name -> kind, of everything that points to a state.
        read: the bytes of a stored file by its SHA-256; None where it is not there.
        model: the file of this name of a model by the model's digest, from the object store.
        trained: session of training -> what its attempts reported, oldest first.
        ended: sessions of training with a result: until then reports of a lost pod may still come.
        epochs: session of training -> epochs that it was asked for.
        worlds: session of training -> on how many processes its attempts were.
        tracked: session of training -> statuses of its runs in MLflow.
        runs: Dagster's run ids -> status.
        failures: of Dagster's steps that failed, each with the error that it kept.
        leftovers: paths that a finished piece of work has no use for.
        processes: command lines of processes that still work in this home.
        remote: what still works or lies half done on servers: pods, Jobs, uploads.
        said: what each command printed, oldest first.
    """

    commits: tuple[Commit, ...]
    refs: Mapping[str, str]
    read: Callable[[str], bytes | None]
    model: Callable[[str, str], bytes | None]
    trained: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()
    epochs: Mapping[str, int] = field(default_factory=dict)
    worlds: Mapping[str, frozenset[int]] = field(default_factory=dict)
    tracked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    runs: Mapping[str, str] = field(default_factory=dict)
    failures: tuple["Failure", ...] = ()
    leftovers: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    remote: tuple[str, ...] = ()
    said: tuple[str, ...] = ()

    @cached_property
    def newest(self) -> Mapping[str, str]:
        return self.commits[-1].tree if self.commits else {}

    def file(self, path: str) -> Json:
        """A JSON file of the newest state.

        Raises:
            LookupError: it is not there.
        """
        content = self.read(self.newest[path]) if path in self.newest else None
        if content is None:
            raise LookupError(path)
        return json.loads(content)

    def below(self, prefix: str) -> list[str]:
        return sorted(path for path in self.newest if path.startswith(prefix))

    @cached_property
    def ledgers(self) -> Mapping[str, tuple[Json, ...]]:
        """Pipeline -> its lines, oldest first; a line that cannot be read is left to ``whole``."""
        found: dict[str, list[Json]] = {}
        for path in self.below("ledger/"):
            content = self.read(self.newest[path])
            if content is not None:
                found.setdefault(path.split("/")[1], []).append(json.loads(content))
        return {pipeline: tuple(lines) for pipeline, lines in found.items()}


# --- reading --------------------------------------------------------------------------------------


def read_home(
    home: Path,
    model: Callable[[str, str], bytes | None] | None = None,
    said: tuple[str, ...] = (),
) -> History:
    """The history of a home whose snapshots lie in its own folder.

    Args:
        model: reads a model's file where the object store is elsewhere.
    """
    blobs = home / "snapshots" / "objects"

    def read(digest: str) -> bytes | None:
        file = blobs / digest[:2] / digest
        return file.read_bytes() if file.is_file() else None

    def model_here(digest: str, name: str) -> bytes | None:
        file = home / "objects" / "models" / digest / name
        return file.read_bytes() if file.is_file() else None

    refs = refs_of(home)
    results = of_sessions(home, "*-train-*/attempts/*/result.json")
    ended = frozenset(file.parts[-4] for file in results)  # before its events are read
    return History(
        commits=tuple(_log(refs.get("main", ("", ""))[1], read)),
        refs={name: kind for name, (kind, _) in refs.items()},
        read=read,
        model=model or model_here,
        trained=_trained(home),
        ended=ended,
        epochs=_asked(home, lambda asked: asked["training"]["epochs"], max),
        worlds=_asked(home, _processes_of, lambda found: frozenset(found)),
        tracked=_tracked(home / "mlflow.db"),
        runs=runs_of(home),
        failures=tuple(failures_of(home)),
        leftovers=tuple(_leftovers(home)),
        processes=tuple(_processes(home)),
        said=said,
    )


def refs_of(home: Path) -> dict[str, tuple[str, str]]:
    """Name -> kind and target, of everything that points to a state of a home."""
    rows = _rows(home / "snapshots" / "refs.db", "select name, kind, target from refs")
    return {name: (kind, target) for name, kind, target in rows}


def runs_of(home: Path) -> dict[str, str]:
    """Dagster's runs -> their status, from the database that lies in a home."""
    return dict(_rows(home / "dagster" / "history" / "runs.db", "select run_id, status from runs"))


FAILURES = "select event from event_logs where dagster_event_type = 'STEP_FAILURE' order by id"


def failures_of(home: Path) -> Iterator[Failure]:
    """The failed steps of Dagster's runs, from the event logs that lie in a home."""
    for log in sorted((home / "dagster" / "history" / "runs").glob("*.db")):
        yield from map(failure, (event for (event,) in _rows(log, FAILURES)))


def failure(event: str) -> Failure:
    """What an event of Dagster's log says of a step that failed."""
    said = json.loads(event)["dagster_event"]
    kept = said["event_specific_data"]
    cause = kept["error"] or {"cls_name": "no error at all", "stack": ["/ml_assets/"]}
    frames = [*cause["stack"]]
    while cause.get("cause"):
        cause = cause["cause"]
        frames += cause["stack"]
    told = (kept.get("user_failure_data") or {}).get("description") or ""
    ours = any("/ml_assets/" in frame for frame in frames)
    return Failure(said["step_key"], cause["cls_name"], told, ours)


def _rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    if not database.is_file():
        return []
    until = time.monotonic() + 10
    while True:
        try:
            with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=20)) as open:
                return open.execute(query).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):  # whoever makes it has only begun
                return []
            if "readonly" in str(error):  # a killed process left its journal
                return _rows_of_copy(database, query)
            if time.monotonic() > until:  # nobody reads its log while the disk is read-only
                raise
            time.sleep(0.5)


def _rows_of_copy(database: Path, query: str) -> list[tuple[Any, ...]]:
    """The rows once a journal is rolled back, in a copy: the next to open the database does it."""
    with tempfile.TemporaryDirectory() as folder:
        for file in database.parent.glob(f"{database.name}*"):
            shutil.copy(file, folder)
        with closing(sqlite3.connect(Path(folder) / database.name)) as copy:
            return copy.execute(query).fetchall()


def _log(head: str, read: Callable[[str], bytes | None]) -> list[Commit]:
    """``main`` by its first parents, oldest first, as far as it can be read."""
    found: list[Commit] = []
    while head and (content := read(head)) is not None:
        commit = json.loads(content)
        tree = read(commit["tree"])
        entries = {path: entry[0] for path, entry in json.loads(tree or b"{}").items()}
        key = commit["metadata"].get("run_key", "")
        found.append(Commit(head, commit["message"], key, entries))
        head = next(iter(commit["parents"]), "")
    return found[::-1]


def of_sessions(home: Path, pattern: str) -> list[Path]:
    """Files of the programs' sessions; looked for again where one goes away meanwhile."""
    while True:
        with suppress(FileNotFoundError):
            return [*(home / "objects" / "sessions").glob(pattern)]


def _trained(home: Path) -> dict[str, tuple[Json, ...]]:
    found: dict[str, tuple[Json, ...]] = {}
    files = of_sessions(home, "*-train-*/attempts/*/events.jsonl")
    for file in sorted(files, key=lambda file: int(file.parts[-2])):
        session = file.parts[-4]
        whole = [line for line in file.read_bytes().split(b"\n") if line.endswith(b"}")]
        found[session] = (*found.get(session, ()), *(json.loads(line) for line in whole))
    return found


def _asked(
    home: Path, of: Callable[[Json], int], join: Callable[[list[int]], Any]
) -> dict[str, Any]:
    """Session of training -> what its attempts were asked for, joined."""
    found: dict[str, list[int]] = {}
    for file in of_sessions(home, "*-train-*/attempts/*/request.json"):
        with suppress(OSError, ValueError):  # it is gone, or half written
            found.setdefault(file.parts[-4], []).append(of(json.loads(file.read_bytes())))
    return {session: join(numbers) for session, numbers in found.items()}


def _processes_of(asked: Json) -> int:
    return asked["world"]["nodes"] * asked["world"]["procs"]


def _tracked(database: Path) -> dict[str, tuple[str, ...]]:
    query = (
        "select tags.value, runs.status from runs join tags using (run_uuid)"
        " where tags.key = 'ml_assets.session' and runs.lifecycle_stage = 'active'"
    )
    found: dict[str, tuple[str, ...]] = {}
    for session, status in _rows(database, query):
        found[session] = (*found.get(session, ()), status)
    return found


def _leftovers(home: Path) -> Iterator[str]:
    for folder in ("scratch", "snapshots/drafts", "mlflow_outbox"):
        yield from (str(path.relative_to(home)) for path in sorted((home / folder).glob("*")))


def _processes(home: Path) -> Iterator[str]:
    """Those of this machine that were given this home, but for the one that asks."""
    given = f"ML_ASSETS_HOME={home}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if given in (folder / "environ").read_bytes().split(b"\0"):
                yield (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
        except OSError:  # it ended, or belongs to somebody else
            continue
