"""Pages of a list: prefix, after, amount, and names folded at a delimiter."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

LARGEST_PAGE = 1000
DEFAULT_PAGE = 100

Item = TypeVar("Item")


def folded(
    paths: Iterable[str], prefix: str = "", delimiter: str = "", after: str = ""
) -> list[tuple[str, bool]]:
    """The sorted paths that start with ``prefix``, each with whether it is a common prefix."""
    result: list[tuple[str, bool]] = []
    for path in paths:
        if not path.startswith(prefix):
            continue
        head, found, _ = path[len(prefix) :].partition(delimiter) if delimiter else (path, "", "")
        name = prefix + head + delimiter if found else path
        if name > after and (not result or result[-1][0] != name):
            result.append((name, bool(found)))
    return result


def page(items: Sequence[Item], amount: int) -> tuple[Sequence[Item], bool]:
    """The first ``amount`` and whether there are more; too many, or -1, mean the largest page."""
    if amount < 0 or amount > LARGEST_PAGE:
        amount = LARGEST_PAGE
    return items[:amount], len(items) > amount


def shown(
    items: Sequence[Item],
    amount: int,
    show: Callable[[Item], dict[str, Any]],
    offset: Callable[[Item], str],
) -> dict[str, Any]:
    """One page as the API shows it."""
    some, more = page(items, amount if amount > 0 else DEFAULT_PAGE)
    return {
        "pagination": {
            "has_more": more,
            "next_offset": offset(some[-1]) if more and some else "",
            "results": len(some),
            "max_per_page": LARGEST_PAGE,
        },
        "results": [show(item) for item in some],
    }
