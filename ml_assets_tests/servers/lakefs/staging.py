"""Uncommitted changes of a branch: write, remove, reset, and what they add up to."""

from collections.abc import Callable, Iterable

from ml_assets_tests.servers.lakefs import names
from ml_assets_tests.servers.lakefs.refusals import Missing, PreconditionFailed
from ml_assets_tests.servers.lakefs.repository import Branch, Repository
from ml_assets_tests.servers.lakefs.trees import Change, Entry, applied, differences

_PROTECTED = "cannot write to protected branch"


def write(
    repository: Repository,
    branch: str,
    path: str,
    entry: Entry,
    *,
    if_absent: bool = False,
    force: bool = False,
) -> None:
    """
    Raises:
        PreconditionFailed: ``if_absent`` and the branch has the path, staged or committed.
    """
    names.check_path(path)
    check_writable(repository, branch, force=force)

    def put(area: dict[str, Entry | None], before: Branch) -> None:
        if if_absent and _seen(repository, before, path) is not None:
            raise PreconditionFailed
        area[path] = entry

    _change(repository, branch, put)


def remove(
    repository: Repository, branch: str, paths: Iterable[str], *, force: bool = False
) -> None:
    """Removes what is there; a path that is not there is no error."""
    paths = list(paths)
    for path in paths:
        names.check_path(path)
    check_writable(repository, branch, force=force)

    def put(area: dict[str, Entry | None], before: Branch) -> None:
        for path in paths:
            if _seen(repository, before, path) is not None:
                area[path] = None

    _change(repository, branch, put)


def reset(repository: Repository, branch: str) -> None:
    """Forgets all changes of a branch."""
    check_writable(repository, branch)
    before, _ = repository.update(
        branch, lambda old: Branch(old.commit, hidden=old.hidden), tries=1
    )
    repository.drop(before.staging, *before.sealed)


def reset_paths(repository: Repository, branch: str, keep: Callable[[str], bool]) -> None:
    """Forgets the changes of all paths but those that ``keep`` says."""
    check_writable(repository, branch)
    with repository.lock:
        found = repository.branch(branch)
        for area in (found.staging, *found.sealed):
            changes = repository.areas.get(area, {})
            repository.areas[area] = {p: entry for p, entry in changes.items() if keep(p)}


def uncommitted(repository: Repository, branch: str) -> list[Change]:
    with repository.lock:
        found = repository.branch(branch)
        staged = repository.staged(found)
    committed = repository.commits[found.commit].tree
    after = applied(committed, staged)
    return [
        Change(change.kind, change.path, None if change.kind == "removed" else change.entry)
        for change in differences(committed, after)
    ]


def read(repository: Repository, reference: str, path: str) -> Entry:
    """
    Raises:
        Missing: no such path at the reference.
    """
    names.check_path(path)
    with repository.lock:
        resolved = repository.resolve(reference)
        branch = repository.branches.get(resolved.branch)
        if branch:
            found = _seen(repository, branch, path)
        else:
            found = repository.commits[resolved.commit].tree.get(path)
    if found is None:
        raise Missing
    return found


def holds(repository: Repository, reference: str, path: str) -> bool:
    try:
        read(repository, reference, path)
    except Missing:
        return False
    return True


def check_writable(repository: Repository, branch: str, *, force: bool = False) -> None:
    names.check_branch(branch)
    repository.check_unprotected(branch, _PROTECTED)
    repository.check_writable(force=force)
    repository.branch(branch)


def _seen(repository: Repository, branch: Branch, path: str) -> Entry | None:
    with repository.lock:
        for area in (branch.staging, *branch.sealed):
            changes = repository.areas.get(area, {})
            if path in changes:
                return changes[path]
    return repository.commits[branch.commit].tree.get(path)


def _change(
    repository: Repository,
    branch: str,
    put: Callable[[dict[str, Entry | None], Branch], None],
) -> None:
    """Writes to the area that is open now: one that was sealed meanwhile is left alone."""
    with repository.lock:
        before = repository.branch(branch)
        put(repository.areas.setdefault(before.staging, {}), before)
