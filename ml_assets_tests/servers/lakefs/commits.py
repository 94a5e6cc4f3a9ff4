"""What moves a branch: commit, merge, revert, cherry-pick, hard reset, with their hooks."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ml_assets_tests.servers.lakefs.history import Commit, merge_base
from ml_assets_tests.servers.lakefs.hooks import Event, Hooks
from ml_assets_tests.servers.lakefs.refusals import Conflict, Dirty, Invalid, NoChanges, Refused
from ml_assets_tests.servers.lakefs.repository import Branch, Repository
from ml_assets_tests.servers.lakefs.trees import Tree, applied, merged, tree_id

_STRATEGIES = {"": "default", "dest-wins": "dest-wins", "source-wins": "source-wins"}


@dataclass(frozen=True)
class Wish:
    """What the caller says of the commit to be made."""

    committer: str
    message: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    allow_empty: bool = False
    force: bool = False
    date: int | None = None
    """Seconds since 1970; now where it is not said."""


def commit(repository: Repository, hooks: Hooks, branch: str, wish: Wish) -> Commit:
    """Takes everything that is staged, whoever staged it.

    Raises:
        NoChanges: nothing is staged.
    """
    repository.branch(branch)
    repository.check_unprotected(branch, "cannot commit to protected branch")
    repository.check_writable(force=wish.force)
    said = _Said(repository, hooks, branch)
    draft = _draft(wish)
    said.before("prepare-commit", draft, source=branch)
    repository.update(branch, Branch.seal, tries=1)
    made = draft

    def change(before: Branch) -> Branch:
        nonlocal made
        parent = repository.commits[before.commit]
        said.before("pre-commit", replace(draft, parents=(parent.id,)), source=branch)
        tree = applied(parent.tree, repository.staged(before, sealed_only=True))
        if not wish.allow_empty and not repository.is_dirty(before, sealed_only=True):
            raise NoChanges("commit")
        made = replace(draft, tree=tree, parents=(parent.id,), generation=parent.generation + 1)
        return _moved(repository, before, made)

    before, _ = repository.update(branch, change)
    repository.drop(*before.sealed)
    said.after("post-commit", made)
    return made


@dataclass(frozen=True)
class Merging:
    """How two sides become one."""

    strategy: str = ""
    squash: bool = False


def merge(
    repository: Repository, hooks: Hooks, source: str, branch: str, wish: Wish, how: Merging
) -> Commit:
    """Three ways, into a clean branch.

    Raises:
        Dirty: the destination has uncommitted changes.
        NoChanges: the source has nothing that the merge base has not.
        MergeConflict: both sides changed a path.
    """
    if how.strategy not in _STRATEGIES:
        raise Invalid("argument strategy: invalid value: validation error")
    repository.check_writable(force=wish.force)
    repository.commit(source)
    said = _Said(repository, hooks, branch)
    _prepare(repository, branch)
    made = _draft(wish)

    def change(before: Branch) -> Branch:
        nonlocal made
        _check_clean(repository, branch, before)
        theirs, ours = repository.commit(source), repository.commits[before.commit]
        base = merge_base(repository.commits, theirs.id, ours.id)
        free = wish.allow_empty or wish.force
        tree = _merged(ours, theirs, base, how.strategy, allow_empty=free)
        made = replace(
            made,
            message=wish.message or f"Merge '{source}' into '{branch}'",
            tree=tree,
            parents=(ours.id,) if how.squash else (ours.id, theirs.id),
            metadata={**wish.metadata, ".lakefs.merge.strategy": _STRATEGIES[how.strategy]},
            generation=max(ours.generation, theirs.generation) + 1,
        )
        said.before("pre-merge", made, source=theirs.id, merge_source=source, commit_id=made.id)
        return _moved(repository, before, made)

    try:
        before, _ = repository.update(branch, change)
    except Refused as refused:
        refused.message = f"update branch {branch}: {refused.message}"
        raise
    repository.drop(*before.sealed)
    said.after("post-merge", made, merge_source=source)
    return made


def revert(
    repository: Repository, hooks: Hooks, branch: str, reference: str, parent: int, wish: Wish
) -> Commit:
    """Undoes one commit by a new one; of a merge, relative to one of its parents (from 1)."""
    repository.check_writable(force=wish.force)
    undone = repository.commit(reference)
    if len(undone.parents) > 1 and parent <= 0:
        raise Conflict("must specify 1-based parent number for reverting merge commit")
    picked = _parent(repository, undone, max(parent, 1))
    wish = replace(wish, message=wish.message or f"Revert {reference}")
    return _replay(repository, hooks, branch, "revert", picked, undone, wish)


def cherry_pick(
    repository: Repository,
    hooks: Hooks,
    branch: str,
    reference: str,
    parent: int | None,
    wish: Wish,
) -> Commit:
    """Does one commit of elsewhere again on this branch."""
    repository.check_writable(force=wish.force)
    picked = repository.commit(reference)
    if parent is None and len(picked.parents) > 1:
        raise Invalid("must specify 1-based parent number for cherry-picking merge commit")
    base = _parent(repository, picked, 1 if parent is None else parent)
    metadata = {
        **(wish.metadata or picked.metadata),
        "cherry-pick-origin": picked.id,
        "cherry-pick-committer": picked.committer,
    }
    wish = replace(wish, message=wish.message or picked.message, metadata=metadata)
    return _replay(repository, hooks, branch, "cherry-pick", picked, base, wish)


def take_in(
    repository: Repository,
    hooks: Hooks,
    branch: str,
    imported: Tree,
    prefixes: tuple[str, ...],
    wish: Wish,
) -> Commit:
    """Puts what was imported in the place of all that lies under ``prefixes``, on a clean branch.

    Raises:
        Dirty: the branch has uncommitted changes.
    """
    repository.check_writable(force=wish.force)
    said = _Said(repository, hooks, branch)
    _prepare(repository, branch)
    made = _draft(wish)

    def change(before: Branch) -> Branch:
        nonlocal made
        _check_clean(repository, branch, before)
        ours = repository.commits[before.commit]
        kept = {path: each for path, each in ours.tree.items() if not path.startswith(prefixes)}
        made = replace(
            made,
            tree={**kept, **imported},
            parents=(ours.id,),
            metadata={**wish.metadata, ".lakefs.merge.strategy": "source-wins"},
            generation=ours.generation + 1,
        )
        said.before("pre-commit", made, source=branch)
        return _moved(repository, before, made)

    before, _ = repository.update(branch, change)
    repository.drop(*before.sealed)
    said.after("post-commit", made)
    return made


def hard_reset(repository: Repository, branch: str, reference: str, *, force: bool) -> None:
    """Points a clean branch to another commit."""
    repository.check_unprotected(branch, "protected branch")
    repository.check_writable(force=force)

    def change(before: Branch) -> Branch:
        _check_clean(repository, branch, before)
        return replace(before, commit=repository.commit(reference).id)

    repository.update(branch, change)


# --- what they share ------------------------------------------------------------------------------


@dataclass
class _Said:
    """The hooks of one operation on one branch."""

    repository: Repository
    hooks: Hooks
    branch: str
    run: str = ""

    def before(self, event: str, commit: Commit, **more: str) -> None:
        self.run = self.hooks.before(self._event(event, commit, more))

    def after(self, event: str, commit: Commit, **more: str) -> None:
        more = {"source": commit.id, "commit_id": commit.id, **more}
        self.hooks.after(self._event(event, commit, more), self.run)

    def _event(self, event: str, commit: Commit, more: Mapping[str, str]) -> Event:
        return Event(event, self.repository, branch=self.branch, commit=commit, **more)


def _draft(wish: Wish) -> Commit:
    draft = Commit(wish.message, {}, committer=wish.committer, metadata=wish.metadata)
    return draft if wish.date is None else replace(draft, created=wish.date * 1_000_000_000)


def _prepare(repository: Repository, branch: str) -> None:
    """Refuses a dirty branch; closes its staging area, so that a write from now on is not lost."""

    def change(before: Branch) -> Branch:
        if repository.is_dirty(before):
            raise Dirty
        return before.seal()

    repository.update(branch, change)


def _check_clean(repository: Repository, name: str, branch: Branch) -> None:
    if repository.is_dirty(branch, sealed_only=True):
        raise Dirty(name)


def _merged(
    ours: Commit, theirs: Commit, base: Commit, strategy: str = "", *, allow_empty: bool
) -> Tree:
    if theirs.meta_range == base.meta_range and not allow_empty:
        raise NoChanges
    if ours.meta_range == base.meta_range:
        return theirs.tree
    return merged(ours.tree, theirs.tree, base.tree, strategy)


def _moved(repository: Repository, before: Branch, commit: Commit) -> Branch:
    repository.add(commit)
    return replace(before, commit=commit.id, sealed=())


def _parent(repository: Repository, commit: Commit, parent: int) -> Commit:
    """The ``parent``-th parent (from 1); an empty one, before the first commit."""
    if not commit.parents and parent == 1:
        return Commit("", {})
    if not 1 <= parent <= len(commit.parents):
        words = "given commit does not have the given parent number"
        raise Invalid(f"{words}: parent {parent}")
    return repository.commits[commit.parents[parent - 1]]


def _replay(
    repository: Repository,
    hooks: Hooks,
    branch: str,
    operation: str,
    theirs: Commit,
    base: Commit,
    wish: Wish,
) -> Commit:
    """Applies the way from ``base`` to ``theirs`` to the head of the branch."""
    said = _Said(repository, hooks, branch)
    _prepare(repository, branch)
    made = _draft(wish)

    def change(before: Branch) -> Branch:
        nonlocal made
        _check_clean(repository, branch, before)
        ours = repository.commits[before.commit]
        tree = _merged(ours, theirs, base, allow_empty=wish.allow_empty)
        if operation == "revert" and tree_id(tree) == ours.meta_range and not wish.allow_empty:
            raise NoChanges
        made = replace(made, tree=tree, parents=(ours.id,), generation=ours.generation + 1)
        said.before(f"pre-{operation}", made, source=branch)
        return _moved(repository, before, made)

    try:
        before, _ = repository.update(branch, change, tries=1)
    except Refused as refused:
        refused.message = f"update branch: {refused.message}"
        raise
    repository.drop(*before.sealed)
    said.after(f"post-{operation}", made)
    return made
