"""Imports: objects of another bucket become part of a branch by reference, in the background."""

import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ml_assets_tests.servers.lakefs import commits
from ml_assets_tests.servers.lakefs.commits import Wish
from ml_assets_tests.servers.lakefs.history import Commit
from ml_assets_tests.servers.lakefs.hooks import Hooks
from ml_assets_tests.servers.lakefs.object_store import ObjectStore, md5
from ml_assets_tests.servers.lakefs.refusals import Conflict, Invalid, Missing, Refused
from ml_assets_tests.servers.lakefs.repository import Repository
from ml_assets_tests.servers.lakefs.trees import Entry


@dataclass(frozen=True)
class Source:
    path: str
    """An address in the object store: of one object, or the start of many."""
    destination: str
    is_prefix: bool


@dataclass
class Import:
    id: str = field(default_factory=lambda: secrets.token_hex(10))
    updated: datetime = field(default_factory=lambda: datetime.now(UTC))
    ingested: int = 0
    error: str = ""
    commit: Commit | None = None

    def shown(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "completed": self.commit is not None,
            "update_time": self.updated.isoformat(),
            "ingested_objects": self.ingested,
        }
        if self.error:
            shown["error"] = {"message": self.error}
        if self.commit:
            shown |= {"metarange_id": self.commit.meta_range, "commit": self.commit.shown()}
        return shown


class Imports:
    """All imports of a server. Tests clear ``may_go_on`` to see one that is under way."""

    def __init__(self, store: ObjectStore, hooks: Hooks, seconds: float = 0.0) -> None:
        self._store, self._hooks, self._seconds = store, hooks, seconds
        self._known: dict[tuple[str, str], Import] = {}
        self._lock = threading.Lock()
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def start(
        self, repository: Repository, branch: str, sources: Sequence[Source], wish: Wish
    ) -> str:
        """Begins; the id to ask for.

        Raises:
            Invalid: a source is the repository's own storage.
        """
        repository.branch(branch)
        for source in sources:
            own, path = repository.namespace, source.path
            if path.startswith(own) or (source.is_prefix and own.startswith(path)):
                raise Invalid(f"import path ({path}) in repository namespace ({own}) is prohibited")
        made = Import()
        self._known[repository.name, made.id] = made
        arguments = (made, repository, branch, sources, wish)
        threading.Thread(target=self._run, args=arguments, daemon=True).start()
        return made.id

    def status(self, repository: Repository, name: str) -> Import:
        found = self._known.get((repository.name, name))
        if found is None:
            raise Missing
        return found

    def cancel(self, repository: Repository, name: str) -> None:
        found = self.status(repository, name)
        with self._lock:
            if found.commit:
                raise Conflict("conflict found")
            found.error, found.updated = "Canceled", datetime.now(UTC)

    def _run(
        self,
        made: Import,
        repository: Repository,
        branch: str,
        sources: Sequence[Source],
        wish: Wish,
    ) -> None:
        entries: dict[str, Entry] = {}
        for source in sources:
            found = self._walk(source)
            made.ingested += len(found)
            entries |= found
        time.sleep(self._seconds)
        self.may_go_on.wait()
        with self._lock:
            if made.error:
                return
            prefixes = tuple(source.destination for source in sources)
            try:
                made.commit = commits.take_in(
                    repository, self._hooks, branch, entries, prefixes, wish
                )
            except Refused as refused:
                made.error = f"merge import: {refused.message}"
            made.updated = datetime.now(UTC)

    def _walk(self, source: Source) -> dict[str, Entry]:
        now = int(datetime.now(UTC).timestamp())
        found = {}
        for address in sorted(self._store.addresses(source.path)):
            if source.is_prefix:
                path = source.destination + address.removeprefix(source.path)
            elif address == source.path:
                path = source.destination
            else:
                continue
            content = self._store.get(address)
            found[path] = Entry(address, md5(content), len(content), now)
        return found
