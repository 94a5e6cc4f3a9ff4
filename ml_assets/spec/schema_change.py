"""How the columns of a source differ from those that its spec declares."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from ml_assets.errors import quoted

_NOTED: ContextVar[list[tuple[str, ...]] | None] = ContextVar("noted columns", default=None)

_SHOWN = 10
COLUMNS = "columns"
"""Attribute of the record of a source's stage: column -> type, as declared when it was made."""


@contextmanager
def noted_columns() -> Iterator[list[tuple[str, ...]]]:
    """The column names of every file or table that is read inside, each in its own order.

    A reader gives its rows in the declared order, so this is all that is left of theirs.
    """
    noted: list[tuple[str, ...]] = []
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


def note_columns(found: Sequence[str]) -> None:
    """Tell of the names of a file or table that has the declared columns, in any order."""
    noted = _NOTED.get()
    if noted is not None:
        noted.append(tuple(found))


def column_changes(found: Sequence[str], declared: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """How a table's columns differ from the declared ones: names, then their order.

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
    """How declared columns and types differ, as ``load: int64 -> float64``; their order is none."""
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
