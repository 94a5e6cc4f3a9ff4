"""What an image would hold: distributions that a dependency group brings, and no others.

``world_of(group)`` is an environment for processes in which a module of any other distribution
cannot be imported, although it is installed here.
"""

import json
import os
import re
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[2]
GROUPS: dict[str, list[str]] = tomllib.loads((PROJECT / "pyproject.toml").read_text())[
    "dependency-groups"
]
WALL = """\
import json, os, sys

ABSENT = frozenset(json.load(open(os.environ["ABSENT"])))

class Image:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            return None
        return self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Image(finder) for finder in sys.meta_path]
"""


def distributions(requirements: Iterable[str]) -> set[str]:
    """Names of all distributions that pip would install, from what is installed here."""
    waiting = [Requirement(text) for text in requirements]
    found: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        key = (plain(wanted.name), frozenset(wanted.extras))
        if key in found:
            continue
        found.add(key)
        for text in metadata.distribution(wanted.name).requires or ():
            needed = Requirement(text)
            extras = wanted.extras or {""}
            marker = needed.marker
            applies = marker is None or any(marker.evaluate({"extra": e}) for e in extras)
            if applies and is_installed(needed.name):
                waiting.append(needed)
    return {name for name, _ in found}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def is_installed(name: str) -> bool:
    """The CUDA libraries that torch asks for are not, on a machine with torch for the CPU."""
    try:
        return bool(metadata.distribution(name))
    except metadata.PackageNotFoundError:
        return False


def absent_modules(group: str) -> list[str]:
    """Top-level modules that are installed here and that the group does not bring."""
    there = distributions(GROUPS[group])
    owners = metadata.packages_distributions()
    absent = [m for m, by in owners.items() if not {plain(name) for name in by} & there]
    return sorted({*absent} - {"ml_assets"})


def world_of(group: str, folder: Path) -> dict[str, str]:
    """The environment of a process that finds only what the group brings."""
    absent = folder / "absent.json"
    absent.write_text(json.dumps(absent_modules(group)))
    (folder / "sitecustomize.py").write_text(WALL)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(PROJECT)]),
        "ABSENT": str(absent),
    }
