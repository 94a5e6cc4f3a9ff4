"""One repository: its commits, branches, tags and settings; references; the race for a branch.

A branch is replaced as a whole by compare-and-swap, as in lakeFS: an operation computes the new
branch without a lock and tries again where another one was faster.
"""

import fnmatch
import random
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ml_assets_tests.servers.lakefs import names
from ml_assets_tests.servers.lakefs.history import Commit
from ml_assets_tests.servers.lakefs.refusals import (
    Conflict,
    Forbidden,
    Invalid,
    LostRace,
    Missing,
    ReadOnly,
    TooManyTries,
)
from ml_assets_tests.servers.lakefs.trees import Changes, Entry, Tree, applied, differences

TRIES = 10

_HEX = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True)
class Branch:
    commit: str
    staging: str = field(default_factory=lambda: secrets.token_hex(8))
    """The area that writes go to."""
    sealed: tuple[str, ...] = ()
    """Areas that a commit or a merge has closed and not yet taken, the youngest first."""
    hidden: bool = False

    def seal(self) -> "Branch":
        """With a fresh area, so that later writes are not part of what is under way."""
        sealed = (self.staging, *self.sealed)
        return replace(self, staging=secrets.token_hex(8), sealed=sealed)


@dataclass(frozen=True)
class Resolved:
    """What a reference expression stands for."""

    commit: str
    branch: str = ""
    """Set where uncommitted changes are part of it."""


@dataclass
class Settings:
    """What the settings endpoints keep."""

    gc_rules: dict[str, Any] | None = None
    protected: list[str] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)


class Repository:
    def __init__(
        self, name: str, namespace: str, default_branch: str = "main", read_only: bool = False
    ) -> None:
        self.name, self.namespace = name, namespace
        self.default_branch, self.read_only = default_branch, read_only
        self.created = int(time.time())
        self.settings = Settings()
        first = Commit("Repository created", {})
        self.commits: dict[str, Commit] = {first.id: first}
        self.branches: dict[str, Branch] = {default_branch: Branch(first.id)}
        self.tags: dict[str, str] = {}
        self.areas: dict[str, dict[str, Entry | None]] = {}
        self.lock = threading.RLock()

    def check_writable(self, *, force: bool = False) -> None:
        if self.read_only and not force:
            raise ReadOnly

    def check_unprotected(self, branch: str, words: str) -> None:
        if any(fnmatch.fnmatchcase(branch, pattern) for pattern in self.settings.protected):
            raise Forbidden(words)

    # --- references -------------------------------------------------------------------------------

    def branch(self, name: str) -> Branch:
        names.check_branch(name)
        found = self.branches.get(name)
        if found is None:
            raise Missing("branch")
        return found

    def resolve(self, expression: str) -> Resolved:
        """A branch, a tag, a commit id or the start of one, with modifiers."""
        reference = names.parse(expression)
        start = self._base(reference.base)
        kinds = [modifier.kind for modifier in reference.modifiers]
        if not kinds:
            return start
        if "@" in kinds or "$" in kinds:
            if not start.branch or len(kinds) > 1:
                raise Invalid("ref: invalid value: validation error")
            return start if kinds == ["$"] else Resolved(start.commit)
        commit = start.commit
        for modifier in reference.modifiers:
            commit = self._step(commit, modifier)
        return Resolved(commit)

    def commit(self, expression: str) -> Commit:
        if expression.endswith("$"):
            raise Invalid("reference to staging area with $ is not a commit")
        return self.commits[self.resolve(expression).commit]

    def _base(self, name: str) -> Resolved:
        if name in self.commits:
            return Resolved(name)
        if name in self.branches:
            return Resolved(self.branches[name].commit, name)
        if name in self.tags:
            return Resolved(self.tags[name])
        if _HEX.issuperset(name):
            with self.lock:
                found = [commit for commit in self.commits if commit.startswith(name.lower())]
            if len(found) == 1:
                return Resolved(found[0])
        raise Missing

    def _step(self, commit: str, modifier: names.Modifier) -> str:
        if modifier.kind == "^":
            parents = self.commits[commit].parents
            if modifier.count > len(parents):
                raise Invalid("ref: invalid value: validation error")
            return parents[modifier.count - 1] if modifier.count else commit
        for _ in range(modifier.count):
            if not self.commits[commit].parents:
                raise Missing
            commit = self.commits[commit].parents[0]
        return commit

    # --- content ----------------------------------------------------------------------------------

    def tree(self, expression: str) -> Tree:
        """What a reader of the reference sees: of a branch, with what is staged."""
        with self.lock:  # the commit and what is staged over it belong together
            resolved = self.resolve(expression)
            branch = self.branches.get(resolved.branch)
            staged = self.staged(branch) if branch else {}
        return applied(self.commits[resolved.commit].tree, staged)

    def staged(self, branch: Branch, *, sealed_only: bool = False) -> Changes:
        areas = [*reversed(branch.sealed), *([] if sealed_only else [branch.staging])]
        changes: dict[str, Entry | None] = {}
        with self.lock:
            for area in areas:
                changes.update(self.areas.get(area, {}))
        return changes

    def is_dirty(self, branch: Branch, *, sealed_only: bool = False) -> bool:
        committed = self.commits[branch.commit].tree
        staged = self.staged(branch, sealed_only=sealed_only)
        return any(True for _ in differences(committed, applied(committed, staged)))

    # --- changes ----------------------------------------------------------------------------------

    def update(
        self, name: str, change: Callable[[Branch], Branch], *, tries: int = TRIES
    ) -> tuple[Branch, Branch]:
        """Replaces a branch by what ``change`` makes of it: the one before, the one after.

        Raises:
            TooManyTries: another operation was faster every time.
            LostRace: the same, for an operation that is tried once.
        """
        for number in range(tries):
            if number:  # back off, longer each time, so that one of the rivals gets through
                time.sleep(random.uniform(0, min(0.001 * 2**number, 0.05)))
            before = self.branch(name)
            after = change(before)
            with self.lock:
                if self.branches.get(name) is before:
                    self.branches[name] = after
                    return before, after
        raise TooManyTries if tries > 1 else LostRace

    def add(self, commit: Commit) -> Commit:
        with self.lock:
            self.commits[commit.id] = commit
        return commit

    def drop(self, *areas: str) -> None:
        with self.lock:
            for area in areas:
                self.areas.pop(area, None)

    def create_branch(self, name: str, source: str, *, hidden: bool = False) -> Branch:
        branch = Branch(self.commit(source).id, hidden=hidden)
        with self.lock:
            if name in self.branches:
                raise Conflict("branch already exists: not unique")
            self.branches[name] = branch
        return branch

    def delete_branch(self, name: str) -> None:
        with self.lock:
            branch = self.branch(name)
            del self.branches[name]
            self.drop(branch.staging, *branch.sealed)

    def create_tag(self, name: str, commit: str) -> None:
        with self.lock:
            if name in self.tags:
                raise Conflict("tag already exists: not unique")
            self.tags[name] = commit

    def delete_tag(self, name: str) -> None:
        with self.lock:
            if self.tags.pop(name, None) is None:
                raise Missing("tag")
