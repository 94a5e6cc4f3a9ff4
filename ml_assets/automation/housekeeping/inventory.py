"""Lists the content of the object store, and when each thing was used last."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from ml_assets.automation.housekeeping.retention import Kind, Thing, checkpoints_of, report_of
from ml_assets.launch.events import attempt_numbers
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.spec.training_program import (
    SCHEMA_FILE,
    SHARD_FILE,
    ShardSchema,
    TrainResult,
)
from ml_assets.spec.training_program.pod import REQUESTS
from ml_assets.store.local_checkpoints import stored_at
from ml_assets.store.objects import TRASH, LocalObjects

_MANIFESTS: dict[Kind, tuple[str, ...]] = {
    "models": ("model.json",),
    "shards": (SCHEMA_FILE, SHARD_FILE),
}
"""What is touched when a folder is used again."""


def objects(store: LocalObjects, scratch: Path, kept_at: str | None = None) -> list[Thing]:
    """Everything in the object store, and what killed processes left there and in ``scratch``.

    Args:
        kept_at: the place that holds the checkpoints of every session; None: beside each.
    """
    found = [thing for folder in _folders(store, "sessions") for thing in _session(folder, kept_at)]
    makers = makers_of(_results(store))
    found += [_model(folder, makers) for folder in _folders(store, "models")]
    for pipeline in _folders(store, "shards"):
        for folder in _visible(pipeline):
            found.append(_whole("shards", folder.name, folder, shards_of(_read(folder))))
    for pipeline in _folders(store, "reports"):
        for page in _visible(pipeline):
            found.append(_whole("reports", page.stem, page))
    return [*found, *left_behind(store, scratch)]


def makers_of(results: Iterable[tuple[str, bytes]]) -> dict[str, tuple[str, ...]]:
    """A model's digest -> the sessions that trained it: each has its curves.

    Args:
        results: session and content of each result.
    """
    found: dict[str, tuple[str, ...]] = {}
    for session, content in results:
        try:
            model = TrainResult.model_validate_json(content).model.digest
        except ValidationError:  # of a score or a sanity check
            continue
        found[model] = (*found.get(model, ()), session)
    return found


def _results(store: LocalObjects) -> Iterator[tuple[str, bytes]]:
    for folder in _folders(store, "sessions"):
        for number in attempt_numbers(folder):
            with suppress(OSError):
                yield folder.name, SessionFolder(folder).result(number).read_bytes()


def used(path: Path) -> datetime:
    """Return when a file or folder was changed last; long ago if it is gone."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return datetime.fromtimestamp(0, UTC)


def measure(path: Path) -> tuple[int, int]:
    """Count the files and bytes at and below a path; what vanishes meanwhile is left out."""
    sizes = [size for file in (path, *path.rglob("*")) if (size := _size(file)) is not None]
    return len(sizes), sum(sizes)


def last_used(kind: Kind, path: Path) -> datetime:
    """Return when a thing of a kind was made, or taken up again."""
    if kind == "sessions":
        return session_used(path)
    manifests = [path / name for name in _MANIFESTS.get(kind, ())]
    return used(next((file for file in manifests if file.exists()), path))


def shards_of(schema: bytes) -> tuple[str, ...]:
    """The shards that a training set is of no use without; none where it is no schema."""
    try:
        return tuple(one.digest for one in ShardSchema.model_validate_json(schema).shards)
    except ValidationError:
        return ()


def _read(folder: Path) -> bytes:
    """The schema of a training set; empty: a shard has none."""
    with suppress(OSError):
        return (folder / SCHEMA_FILE).read_bytes()
    return b""


def session_used(folder: Path) -> datetime:
    """Return when anything of a session was written last."""
    attempts = list((folder / "attempts").glob("*"))
    events = [file for attempt in attempts for file in attempt.glob("events*.jsonl")]
    return max(used(place) for place in (folder / "session.json", *attempts, *events))


def _session(folder: Path, kept_at: str | None) -> list[Thing]:
    """A session, and its checkpoints apart where it needs them no more, or where they lie apart."""
    session = SessionFolder(folder, kept_at)
    with session.idle() as idle:
        busy = "" if idle else "a process works on it"
    # the cheap half of the question: the result counts as long as nobody reads the model
    finished = any(session.result(number).is_file() for number in attempt_numbers(folder))
    when = session_used(folder)
    needs = () if finished else _handed(session)
    files, size = measure(folder)
    beside, name = folder / "checkpoints", checkpoints_of(folder.name)
    if kept_at:
        needs = needs if finished else (*needs, name)
        whole = Thing("sessions", folder.name, files, size, when, busy, needs, folder)
        return [whole, *checkpoints_apart(session, when, busy, finished)]
    if not finished or not beside.is_dir():
        return [Thing("sessions", folder.name, files, size, when, busy, needs, folder)]
    of_checkpoints = measure(beside)
    rest = (files - of_checkpoints[0], size - of_checkpoints[1])
    return [
        Thing("sessions", folder.name, *rest, when, busy, needs, folder),
        Thing("checkpoints", name, *of_checkpoints, when, busy, (folder.name,), beside),
    ]


def checkpoints_apart(
    session: SessionFolder, when: datetime, busy: str, finished: bool
) -> list[Thing]:
    """The checkpoints of a session of this home that lie in another place, which others may share.

    Those of an unfinished session are kept with it, and go when it goes.
    """
    stored = stored_at(session.checkpoints)
    if stored is None:
        return []
    needs = (session.session,) if finished else ()
    name, used = checkpoints_of(session.session), max(when, stored.changed)
    address = session.checkpoints
    return [
        Thing("checkpoints", name, stored.files, stored.bytes, used, busy, needs, None, address)
    ]


def _handed(session: SessionFolder) -> tuple[str, ...]:
    """Digests of the data and the model that an unfinished session was given, to go on with."""
    found: set[str] = set()
    for number in attempt_numbers(session.root):
        try:
            request = REQUESTS.validate_json(session.request(number).read_bytes())
        except (OSError, ValidationError):
            continue
        found.add(request.data.digest)
        if request.verb == "score":
            found.add(request.model.digest)
    return tuple(sorted(found))


def _model(folder: Path, makers: Mapping[str, tuple[str, ...]]) -> Thing:
    """A model; its sessions have its curves, and its page tells of it."""
    name = folder.name
    return _whole("models", name, folder, (report_of(name), *makers.get(name, ())))


def _whole(kind: Kind, name: str, path: Path, needs: tuple[str, ...] = ()) -> Thing:
    return Thing(kind, name, *measure(path), last_used(kind, path), needs=needs, path=path)


def left_behind(store: LocalObjects, scratch: Path) -> Iterator[Thing]:
    """Drafts of the dead, what a killed collection had begun to delete, scratch folders."""
    drafts: Iterable[Path] = (
        *_hidden(store.root / "models"),
        *(path for pipeline in _folders(store, "shards") for path in _hidden(pipeline)),
        *(path for pipeline in _folders(store, "reports") for path in _hidden(pipeline)),
        *_below(store.root / TRASH),
        *_below(scratch),
    )
    for path in drafts:
        yield _whole("scratch", str(path), path)


def _folders(store: LocalObjects, kind: str) -> list[Path]:
    return [path for path in _visible(store.root / kind) if path.is_dir()]


def _visible(folder: Path) -> list[Path]:
    return [path for path in _below(folder) if not path.name.startswith(".")]


def _hidden(folder: Path) -> list[Path]:
    return [path for path in _below(folder) if path.name.startswith(".")]


def _below(folder: Path) -> list[Path]:
    """What lies in a folder. A link leads to what is somebody else's: nothing there is ours."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if not path.is_symlink())


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size if file.is_file() else None
    except FileNotFoundError:
        return None
