"""All repositories of a server, its object store, its hooks and what it was set up with."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ml_assets_tests.servers.lakefs import names, staging
from ml_assets_tests.servers.lakefs.hooks import Hooks
from ml_assets_tests.servers.lakefs.imports import Imports
from ml_assets_tests.servers.lakefs.object_store import ObjectStore, md5
from ml_assets_tests.servers.lakefs.refusals import Conflict, Invalid, Missing
from ml_assets_tests.servers.lakefs.repository import Repository
from ml_assets_tests.servers.lakefs.trees import Entry


@dataclass(frozen=True)
class Setup:
    """What an operator of lakeFS configures."""

    access_key: str = "AKIAJTESTSOFMLASSETS"
    secret_key: str = "not/a/secret+only/for/the/tests+of/ml_assets"
    user: str = "admin"
    blockstore: str = "s3"
    """``s3`` and ``azure`` can presign, ``local`` and ``mem`` cannot."""
    store_key: str = "AKIASTOREOFTHETESTS"
    """Presigned URLs are signed with the object store's own keys."""
    store_secret: str = "not/a/secret/either+the/store/below"
    presign_expires: int = 900
    """Seconds."""
    import_seconds: float = 0.0
    """What an import takes at least; of lakeFS a second, until it says that it is done."""
    version: str = "1.84.0"

    @property
    def presigns(self) -> bool:
        return self.blockstore in {"s3", "azure"}

    @property
    def imports(self) -> bool:
        return self.blockstore == "s3"

    def check_presigns(self) -> None:
        if not self.presigns:
            raise Invalid("operation not supported")


@dataclass
class Catalog:
    setup: Setup = field(default_factory=Setup)
    store: ObjectStore = field(default_factory=ObjectStore)
    repositories: dict[str, Repository] = field(default_factory=dict)
    store_endpoint: str = ""
    """Where presigned URLs lead."""
    clock: Callable[[], float] = time.time
    """What signatures are as old against."""
    hooks: Hooks = field(init=False)
    imports: Imports = field(init=False)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.hooks = Hooks(self.store)
        self.imports = Imports(self.store, self.hooks, self.setup.import_seconds)

    def repository(self, name: str) -> Repository:
        names.check_repository(name)
        found = self.repositories.get(name)
        if found is None:
            raise Missing("repository")
        return found

    def create(
        self, name: str, namespace: str, default_branch: str = "main", *, read_only: bool = False
    ) -> Repository:
        """
        Raises:
            Conflict: the name is taken.
            Invalid: a name that is none; a storage namespace of another store, or in use.
        """
        with self.lock:
            if name in self.repositories:
                raise Conflict("error creating repository: not unique")
            names.check_repository(name)
            names.check_branch(default_branch)
            if not namespace.startswith(f"{self.setup.blockstore}://"):
                expected = f"must match: {self.setup.blockstore}"
                raise Invalid(f"failed to create repository: invalid address, {expected}")
            taken = {each.namespace.rstrip("/") for each in self.repositories.values()}
            if namespace.rstrip("/") in taken:
                raise Invalid("failed to create repository: storage namespace already in use")
            made = Repository(name, namespace, default_branch, read_only)
            self.repositories[name] = made
            return made

    def delete(self, name: str, *, force: bool = False) -> None:
        self.repository(name).check_writable(force=force)
        with self.lock:
            del self.repositories[name]

    # --- objects ----------------------------------------------------------------------------------

    def put(
        self,
        repository: Repository,
        content: bytes,
        content_type: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> Entry:
        """Stores bytes; the entry that points to them is yet to be written to a branch."""
        return Entry(
            self.store.put(repository.namespace, content),
            md5(content),
            len(content),
            int(time.time()),
            content_type or "application/octet-stream",
            metadata or {},
        )

    def copy(self, repository: Repository, entry: Entry) -> Entry:
        """The same bytes at an address of their own."""
        content = self.store.get(entry.address)
        made = self.put(repository, content, entry.content_type, entry.metadata)
        return Entry(
            made.address, entry.checksum, made.size, made.modified, made.content_type, made.metadata
        )

    def read(self, repository: Repository, reference: str, path: str) -> tuple[Entry, bytes]:
        entry = staging.read(repository, reference, path)
        return entry, self.store.get(entry.address)
