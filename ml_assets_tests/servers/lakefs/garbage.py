"""Garbage collection: which commits are kept by the rules, and the sweep that takes the rest.

A commit is kept while it heads a branch, is younger than the branch's retention, or is the first
one beyond it; along first parents only. **A tag keeps nothing.** Commits of no branch are kept as
long as the default says. Bytes that nothing points to go when they are a day old.
"""

import time

from ml_assets_tests.servers.lakefs.catalog import Catalog
from ml_assets_tests.servers.lakefs.repository import Repository

_DAY = 24 * 3600 * 1_000_000_000


def sweep(catalog: Catalog, repository: Repository, *, days_later: float = 0) -> set[str]:
    """The addresses whose bytes were taken, as of so many days from now; none without rules."""
    now = time.time_ns() + int(days_later * _DAY)
    rules = repository.settings.gc_rules
    if rules is None:
        return set()
    active = _active(repository, rules, now)
    with repository.lock:
        kept = {
            entry.address for name in active for entry in repository.commits[name].tree.values()
        }
        for area in repository.areas.values():
            kept |= {entry.address for entry in area.values() if entry}
    gone = {
        address
        for address in catalog.store.addresses(repository.namespace.rstrip("/") + "/data/")
        if address not in kept and now - _made(address) > _DAY
    }
    for address in gone:
        catalog.store.delete(address)
    return gone


def _active(repository: Repository, rules: dict, now: int) -> set[str]:
    by_branch = {each["branch_id"]: each["retention_days"] for each in rules["branches"]}
    default = rules["default_retention_days"]
    with repository.lock:
        commits, branches = dict(repository.commits), dict(repository.branches)
    starts = [(branch.commit, by_branch.get(name, default)) for name, branch in branches.items()]
    active = {commit for commit, _ in starts}
    parents = {commit.parents[0] for commit in commits.values() if commit.parents}
    for dangling in set(commits) - parents - active:
        starts.append((dangling, default))
        if commits[dangling].created > now - default * _DAY:
            active.add(dangling)
    for start, days in starts:
        commit = commits[start]
        while commit.parents:
            if commit.created > now - days * _DAY:
                active.add(commit.parents[0])
            commit = commits[commit.parents[0]]
    return active


def _made(address: str) -> int:
    """When the address was given out; the name begins with it."""
    return int(address.rpartition("/data/")[2][:20])
