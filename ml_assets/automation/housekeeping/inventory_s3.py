"""Lists the content of an object store on S3, and of its cache on this machine."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath

from pydantic import ValidationError

from ml_assets.automation.housekeeping.inventory import (
    checkpoints_apart,
    last_used,
    makers_of,
    measure,
    session_used,
    shards_of,
)
from ml_assets.automation.housekeeping.retention import Kind, Thing, checkpoints_of, report_of
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.spec.training_program import SCHEMA_FILE
from ml_assets.spec.training_program.pod import REQUEST, REQUESTS, RESULT
from ml_assets.store.open import EPHEMERAL
from ml_assets.store.s3.client import Item
from ml_assets.store.s3.objects import S3Objects

_DEPTH = {"shards": 3, "models": 2, "reports": 3, "sessions": 2, EPHEMERAL: 2}
"""How many names lead to a thing."""
_CHECKPOINTS = "checkpoints/"
Items = Sequence[Item]


def objects_on_s3(store: S3Objects, kept_at: str | None) -> list[Thing]:
    """Everything in the store, whoever put it there, and what only the cache here has still.

    Args:
        kept_at: where checkpoints lie; in the store itself they are found anyway.

    Raises:
        StoreAway: nobody can tell.
    """
    found: dict[tuple[str, ...], list[Item]] = {}
    for kind, depth in _DEPTH.items():
        for item in store.place.items(f"{kind}/"):
            parts = PurePosixPath(item.name).parts
            if len(parts) >= depth:
                found.setdefault(parts[:depth], []).append(item)
    makers = makers_of(_results(store, found))
    apart = None if kept_at is None or kept_at.startswith(f"{store.place.uri}/") else kept_at
    things = [
        thing
        for place, items in found.items()
        for thing in _things(store, place, items, makers, apart)
    ]
    return [*things, *_cached(store, found)]


def _results(
    store: S3Objects, there: Mapping[tuple[str, ...], Items]
) -> Iterator[tuple[str, bytes]]:
    for place, items in there.items():
        for item in items:
            if place[0] == "sessions" and item.name.endswith(f"/{RESULT}"):
                yield place[1], store.place.read(item.name) or b""


def _things(
    store: S3Objects,
    place: tuple[str, ...],
    items: Items,
    makers: Mapping[str, tuple[str, ...]],
    kept_at: str | None,
) -> list[Thing]:
    match place[0]:
        case "sessions" if kept_at:
            return _session_apart(store, place, items, kept_at)
        case "sessions":
            return _session(store, place, items)
        case "models":
            needs = (report_of(place[1]), *makers.get(place[1], ()))
            return [_whole(store, "models", place, items, needs)]
        case "shards":
            return [_whole(store, "shards", place, items, _shards(store, items))]
        case "scratch":  # a command's own store: it was killed before it could delete it
            name = f"{store.place.uri}/{'/'.join(place)}"
            return [_thing(store, "scratch", name, place, items, _newest(items))]
        case _:
            return [_whole(store, "reports", place, items)]


def _whole(
    store: S3Objects, kind: Kind, place: tuple[str, ...], items: Items, needs: tuple[str, ...] = ()
) -> Thing:
    """As old as what was put there last: its manifest, which is written again when it is used
    again, or a file of somebody who put the same there at the same time.
    """
    name = PurePosixPath(place[-1]).stem if kind == "reports" else place[-1]
    return _thing(store, kind, name, place, items, _newest(items), needs=needs)


def _shards(store: S3Objects, items: Items) -> tuple[str, ...]:
    """The shards that a training set needs; a shard needs none."""
    schema = next((item.name for item in items if item.name.endswith(f"/{SCHEMA_FILE}")), None)
    return shards_of(store.place.read(schema) or b"") if schema else ()


def _session(store: S3Objects, place: tuple[str, ...], items: Items) -> list[Thing]:
    """A session, and its checkpoints apart where it needs them no more."""
    name, inner = place[1], f"{'/'.join(place)}/"
    saved = [item for item in items if item.name.startswith(inner + _CHECKPOINTS)]
    told = [item for item in items if item not in saved]
    finished = any(item.name.endswith(f"/{RESULT}") for item in told)
    busy, when = _busy(store, name), _newest(items)
    if not finished:
        needs = _handed(store, told)
        return [_thing(store, "sessions", name, place, items, when, busy, needs)]
    things = [_thing(store, "sessions", name, place, told, when, busy)] if told else []
    if saved:
        apart, beside = checkpoints_of(name), (*place, _CHECKPOINTS.rstrip("/"))
        things.append(_thing(store, "checkpoints", apart, beside, saved, when, busy, (name,)))
    return things


def _session_apart(store: S3Objects, place: tuple[str, ...], items: Items, at: str) -> list[Thing]:
    """A session, and its checkpoints, which lie in a place of their own."""
    name, when = place[1], _newest(items)
    busy, finished = _busy(store, name), any(item.name.endswith(f"/{RESULT}") for item in items)
    own = SessionFolder.of(store, name, at)
    apart = checkpoints_apart(own, when, busy, finished)
    needs = () if finished else (*_handed(store, items), *(one.name for one in apart))
    return [_thing(store, "sessions", name, place, items, when, busy, needs), *apart]


def _thing(
    store: S3Objects,
    kind: Kind,
    name: str,
    place: tuple[str, ...],
    items: Items,
    used: datetime,
    busy: str = "",
    needs: tuple[str, ...] = (),
) -> Thing:
    size, address = sum(item.size for item in items), "/".join([store.place.uri, *place])
    return Thing(kind, name, len(items), size, used, busy, needs, store.path(*place), address)


def _newest(items: Items) -> datetime:
    return max(item.changed for item in items)


def _busy(store: S3Objects, session: str) -> str:
    """Somebody of this home; other homes are known by how young is what they wrote."""
    folder = store.path("sessions", session)
    if not folder.is_dir():
        return ""
    with SessionFolder(folder).idle() as idle:
        return "" if idle else "a process works on it"


def _handed(store: S3Objects, told: Items) -> tuple[str, ...]:
    """Digests of the data and the model that an unfinished session was given, to go on with."""
    found: set[str] = set()
    for item in told:
        if not item.name.endswith(f"/{REQUEST}"):
            continue
        try:
            request = REQUESTS.validate_json(store.place.read(item.name) or b"")
        except ValidationError:
            continue
        found |= {request.data.digest}
        if request.verb == "score":
            found |= {request.model.digest}
    return tuple(sorted(found))


def _cached(store: S3Objects, there: Mapping[tuple[str, ...], Items]) -> Iterator[Thing]:
    """Folders of the cache: fetched again when they are asked for, so they go when nobody did.

    A session goes when it is gone on S3; its worker holds it. Their names are no paths, which
    records tell: what is reached is what lies on S3.
    """
    for kind in ("shards", "models"):
        pattern = "*/*" if kind == "shards" else "*"
        for folder in (store.root / kind).glob(pattern):
            if folder.is_dir():
                when = last_used(kind, folder)
                yield Thing("scratch", f"cache {folder}", *measure(folder), when, path=folder)
    for folder in (store.root / "sessions").glob("*"):
        if ("sessions", folder.name) not in there and folder.is_dir():
            busy = _busy(store, folder.name)
            used = session_used(folder)
            yield Thing("scratch", f"cache {folder}", *measure(folder), used, busy, path=folder)
