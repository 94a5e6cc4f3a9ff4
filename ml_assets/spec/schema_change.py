"""Compares the columns of a source with those that its spec declares."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from ml_assets.errors import quoted


@dataclass
class Noted:
    """Holds what is left to say of a source whose rows could be read."""

    columns: list[tuple[str, ...]] = field(default_factory=list)
    """The names of each file or table, in its own order: its rows come in the declared one."""
    said: list[str] = field(default_factory=list)
    """Sentences on values that can be read in two ways."""


_NOTED: ContextVar[Noted | None] = ContextVar("noted", default=None)

_SHOWN = 10
COLUMNS = "columns"
"""Attribute of the record of a source's stage: column -> type, as declared when it was made."""


@contextmanager
def noted() -> Iterator[Noted]:
    """What readers say of every file or table that is read inside."""
    noted = Noted()
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


def note_columns(found: Sequence[str]) -> None:
    """Tell of the names of a file or table that has the declared columns, in any order."""
    if there := _NOTED.get():
        there.columns.append(tuple(found))


def note(said: str) -> None:
    """Tell of values that were read in one of two ways."""
    if there := _NOTED.get():
        there.said.append(said)


def column_changes(found: Sequence[str], declared: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return how a table's columns differ from the declared ones: names, then their order.

    Only what differs is in it. Reordered are those that are not where the declaration has them,
    among the columns that both have.
    """
    both = [name for name in dict.fromkeys(found) if name in declared]
    order = [name for name in declared if name in both]
    changes = {
        "added": tuple(name for name in dict.fromkeys(found) if name not in declared),
        "removed": tuple(name for name in declared if name not in found),
        "reordered": tuple(a for a, b in zip(both, order, strict=True) if a != b),
    }
    return {kind: names for kind, names in changes.items() if names}


def declared_changes(was: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return how declared columns and types differ, such as ``load: int64 -> float64``."""
    names = [name for name in dict.fromkeys([*was, *now]) if was.get(name) != now.get(name)]
    return _shown([f"{name}: {was.get(name, 'none')} -> {now.get(name, 'none')}" for name in names])


def changes_in_words(changes: Mapping[str, Sequence[str]]) -> str:
    """``added: gust; removed: wind, rain``; of many columns the first ones and how many more.

    Added names are quoted: a file without a header has values of its first row for names.
    """
    told = {
        kind: list(map(quoted, names)) if kind == "added" else names
        for kind, names in changes.items()
    }
    return "; ".join(f"{kind}: {_shown(names)}" for kind, names in told.items())


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
