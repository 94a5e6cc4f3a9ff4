"""Commits as a graph: their ids, the order of a log, the merge base of two of them."""

import heapq
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ml_assets_tests.servers.lakefs.refusals import Refused
from ml_assets_tests.servers.lakefs.trees import Tree, digest, tree_id


@dataclass(frozen=True)
class Commit:
    message: str
    tree: Tree
    parents: tuple[str, ...] = ()
    committer: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    created: int = field(default_factory=lambda: _ticks())
    """Nanoseconds since 1970; clients see seconds, a log is ordered by the whole."""
    generation: int = 1
    id: str = field(init=False)
    meta_range: str = field(init=False)

    def __post_init__(self) -> None:
        meta_range = tree_id(self.tree) if self.tree or self.parents else ""  # lakeFS's first one
        said = (self.message, self.committer, dict(self.metadata), self.created)
        object.__setattr__(self, "meta_range", meta_range)
        object.__setattr__(self, "id", digest(*said, self.parents, meta_range))

    @property
    def seconds(self) -> int:
        return self.created // 1_000_000_000

    def shown(self) -> dict[str, object]:
        """As the API shows it."""
        return {
            "id": self.id,
            "parents": list(self.parents),
            "committer": self.committer,
            "message": self.message,
            "creation_date": self.seconds,
            "meta_range_id": self.meta_range,
            "metadata": dict(self.metadata),
            "generation": self.generation,
            "version": 1,
        }


Commits = Mapping[str, Commit]


def log(commits: Commits, start: str, *, first_parent: bool = False) -> Iterator[Commit]:
    """From ``start`` back, the youngest first."""
    queue = [_by_age(commits[start])]
    seen = {start}
    while queue:
        commit = commits[heapq.heappop(queue)[1]]
        yield commit
        for parent in commit.parents[:1] if first_parent else commit.parents:
            if parent not in seen:
                seen.add(parent)
                heapq.heappush(queue, _by_age(commits[parent]))


def merge_base(commits: Commits, one: str, other: str) -> Commit:
    """The first commit that both sides come from, walking down the generations."""
    reached = {one: {one}, other: {other}}
    if one == other:
        return commits[one]
    queue = [(-commits[side].generation, side) for side in (one, other)]
    heapq.heapify(queue)
    while queue:
        _, name = heapq.heappop(queue)
        for parent in commits[name].parents:
            if parent not in reached:
                reached[parent] = set()
                heapq.heappush(queue, (-commits[parent].generation, parent))
            reached[parent] |= reached[name]
            if len(reached[parent]) == 2:
                return commits[parent]
    raise Refused("find merge base: no merge base")


def _by_age(commit: Commit) -> tuple[int, str]:
    return -commit.created, commit.id


_lock = threading.Lock()
_last = 0


def _ticks() -> int:
    """The time, never the same twice: a child is younger than its parent."""
    global _last
    with _lock:
        _last = max(_last + 1, time.time_ns())
        return _last
