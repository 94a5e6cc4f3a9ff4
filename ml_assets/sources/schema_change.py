"""How the columns of a source differ from those that its spec declares."""

from collections.abc import Mapping, Sequence


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


def changes_in_words(changes: Mapping[str, Sequence[str]]) -> str:
    """``added: gust; removed: wind, rain``."""
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in changes.items())
