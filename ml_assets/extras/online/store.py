"""The port of the online store, and the format of a row in it.

A pipeline serves one version at a time. A new one is loaded beside it and takes its place in one
step: a reader sees the rows of one version, never of two.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from ml_assets.errors import SpecError, StorageError

if TYPE_CHECKING:
    import polars as pl

STAGE = "online_features"
Rows = Iterable[tuple[str, str]]
"""(entity, row), both as they are stored."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = date(1970, 1, 1)
TYPES = ("Int64", "Float64", "String", "Boolean", "Date", "Datetime")
"""The types of a column, as they are stored; a time is in UTC with microseconds."""


@dataclass(frozen=True)
class Served:
    """Holds what a pipeline serves: a version of its online features, and how rows are read."""

    pipeline: str
    version: str
    """The data version of the table that was loaded."""
    entity: tuple[str, ...]
    types: Mapping[str, str]
    """Column -> one of ``TYPES``, in the order of a row."""
    rows: int

    def as_json(self) -> str:
        """Return what is served, as the JSON that a store keeps."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> "Served":
        """Return what a store kept."""
        try:
            found = json.loads(text)
            return cls(**{**found, "entity": tuple(found["entity"])})
        except (ValueError, LookupError, TypeError) as error:
            raise _damaged(error) from error


@dataclass(frozen=True)
class EntityRows:
    """Answers of one version, in the order of the questions; None: no such entity."""

    served: Served
    rows: tuple[str | None, ...]


class OnlineStore(Protocol):
    """A store of the newest feature row of each entity; each thread needs one of its own."""

    def current(self, pipeline: str) -> Served | None:
        """Return what is served; None: nothing yet, or its rows are lost.

        Raises:
            StoreAway: the store does not answer.
        """
        ...

    def get(self, pipeline: str, entities: Sequence[str]) -> EntityRows | None:
        """The rows of entities, all of the version that is served; None: nothing is.

        Raises:
            StoreAway: the store does not answer.
        """
        ...

    def serve(self, served: Served, rows: Rows) -> None:
        """Load a version and put it in the place of the one before, in one step.

        Killed or failed at any moment, the one before is served. Again with the same: the same.

        Raises:
            StoreAway: the store does not answer, or somebody else loads there at this moment.
        """
        ...


def column_types(frame: "pl.DataFrame") -> dict[str, str]:
    """Column -> the type that it is stored as.

    Raises:
        SpecError: a column is of another type.
    """
    found: dict[str, str] = {}
    for name, dtype in frame.schema.items():
        kind = "Int64" if dtype.is_integer() else str(dtype.base_type())
        if kind not in TYPES:
            raise SpecError(
                f"The column {name!r} of the online features is {dtype}; one of {TYPES} can be"
                " looked up. Cast it in the feature function."
            )
        found[name] = kind
    return found


def entity_key(values: Sequence[Any]) -> str:
    """An entity as it is stored: its values in the order of ``entity``."""
    return _text([_plain(value) for value in values])


def encode(frame: "pl.DataFrame", entity: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each row as it is stored. Floats are written so that they are read back bit for bit."""
    places = [frame.columns.index(name) for name in entity]
    for row in frame.iter_rows():
        plain = [_plain(value) for value in row]
        yield _text([plain[place] for place in places]), _text(plain)


def decode(text: str, types: Mapping[str, str]) -> dict[str, Any]:
    """A stored row: column -> value, as polars gives it."""
    try:
        columns = zip(types.items(), json.loads(text), strict=True)
        return {name: _value(value, kind) for (name, kind), value in columns}
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> StorageError:
    return StorageError(
        f"What the online store holds cannot be read: {error}. Somebody else wrote there; load it"
        " again: materialize online_features."
    )


def parse_entity(served: Served, given: Mapping[str, str]) -> list[Any]:
    """The values of an entity, from text.

    Raises:
        SpecError: other columns are given than identify an entity, or text is not of their type.
    """
    if set(given) != set(served.entity):
        written = " ".join(f"{name}=VALUE" for name in served.entity)
        raise SpecError(
            f"{served.pipeline} looks features up by {', '.join(served.entity)}; given are"
            f" {', '.join(sorted(given)) or 'none'}. Write {written}."
        )
    return [_parsed(name, given[name], served.types[name]) for name in served.entity]


def typed_entity(types: Mapping[str, str], entity: Mapping[str, Any]) -> dict[str, Any]:
    """The values that name an entity, as its columns hold them; None is of each type.

    JSON has one kind of number, and text for days and times.

    Raises:
        SpecError: one is of another type, so that no entity could be found by it.
    """
    for name, value in entity.items():
        expected = _PYTHON.get(types[name], object)
        if value is not None and (
            not isinstance(value, expected) or (expected is not bool and isinstance(value, bool))
        ):
            raise SpecError(f"{name} is {value!r:.80}; a value of type {types[name]} is expected.")
    return {name: _as_held(name, value, types[name]) for name, value in entity.items()}


def _as_held(name: str, value: Any, kind: str) -> Any:
    if kind == "Float64" and isinstance(value, int):
        return _parsed(name, value, kind)
    if kind in ("Date", "Datetime") and isinstance(value, str):
        return _parsed(name, value, kind)
    return value


_PYTHON: Mapping[str, type | tuple[type, ...]] = {
    "Int64": int,
    "Float64": (int, float),
    "String": str,
    "Boolean": bool,
}
"""What a value of JSON is, by the column's type."""


def _parsed(name: str, text: Any, kind: str) -> Any:
    readers = {
        "Int64": int,
        "Float64": float,
        "String": str,
        "Boolean": {"true": True, "false": False}.__getitem__,
        "Date": date.fromisoformat,
        "Datetime": _instant,
    }
    try:
        return readers[kind](text)
    except (ValueError, KeyError, OverflowError) as error:
        raise SpecError(f"{name} is {text!r:.80}; a value of type {kind} is expected.") from error


def _instant(text: str) -> datetime:
    """A time in UTC; without a zone it is one of UTC already."""
    told = datetime.fromisoformat(text)
    return told.replace(tzinfo=UTC) if told.tzinfo is None else told.astimezone(UTC)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - _DAY).days
    return value


def _value(plain: Any, kind: str) -> Any:
    if plain is None or kind not in ("Date", "Datetime"):
        return plain
    if kind == "Date":
        return _DAY + timedelta(days=plain)
    return _EPOCH + timedelta(microseconds=plain)


def _text(values: Sequence[Any]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))
