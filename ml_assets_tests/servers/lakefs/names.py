"""Which names lakeFS accepts, and the parts of a reference expression (``main~2^1``)."""

import re
from dataclasses import dataclass

from ml_assets_tests.servers.lakefs.refusals import Invalid, PathRequired

LONGEST_PATH = 1024

_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9-]{2,62}")
_BRANCH = re.compile(r"\w[-\w]*", re.ASCII)
_MODIFIER = re.compile(r"[~^@$][^~^@$]*")


@dataclass(frozen=True)
class Modifier:
    """``~n``: n first parents up; ``^n``: the n-th parent; ``@``: committed; ``$``: staged."""

    kind: str
    count: int = 1


@dataclass(frozen=True)
class Reference:
    base: str
    modifiers: tuple[Modifier, ...] = ()


def check_repository(name: str) -> None:
    if not _REPOSITORY.fullmatch(name):
        raise Invalid("argument repository: repository id: invalid value: validation error")


def check_branch(name: str) -> None:
    if not _BRANCH.fullmatch(name):
        raise Invalid(
            "argument branch: branch id: invalid value: validation error: branch id must consist "
            "of letters, digits, underscores and dashes, and cannot start with a dash"
        )


def check_tag(name: str) -> None:
    """The rules of git, but ``~`` is allowed."""
    broken = (
        not name
        or name == "@"
        or name.endswith((".", ".lock"))
        or any(part in name for part in ("..", "/", "@{"))
        or any(letter in "^:?*[\\" or letter <= " " for letter in name)
    )
    if broken:
        raise Invalid("argument tagID: tag id: invalid value: validation error")


def check_path(path: str) -> None:
    if not path:
        raise PathRequired
    if len(path.encode()) > LONGEST_PATH:
        raise Invalid(f"argument path: invalid value: above maximum length ({LONGEST_PATH})")


def parse(expression: str) -> Reference:
    """Splits ``main~2^1`` into what it starts from and the steps."""
    base = re.match(r"[^~^@$]*", expression)
    start = base.group() if base else ""
    steps = expression[len(start) :]
    if not start or re.search(r"\s", expression):
        raise Invalid("ref: invalid value: validation error")
    return Reference(start, tuple(_modifier(step) for step in _MODIFIER.findall(steps)))


def _modifier(text: str) -> Modifier:
    kind, count = text[0], text[1:]
    if not count:
        return Modifier(kind)
    if kind in "@$" or not count.isascii() or not count.isdigit():
        raise Invalid(f"could not parse modifier {text}: ref: invalid value: validation error")
    return Modifier(kind, int(count))
