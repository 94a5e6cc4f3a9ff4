"""Connects to an MLflow server or database: a client, the locks, the creation of a new database.

MLflow breaks a fresh SQLite file that several processes open at once: one of them makes it here.
"""

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from ml_assets.settings.addresses import password_forms

if TYPE_CHECKING:
    from mlflow import MlflowClient

_clients: dict[tuple[str, int], "MlflowClient"] = {}
"""(URI, process) -> client: a fork does not share its parent's connections."""


@dataclass(frozen=True)
class Server:
    """One tracking server or database.

    Args:
        uri: ``sqlite:///...``, another database URL, or ``http(s)://...``.
        home: the state folder.
    """

    uri: str = field(repr=False)
    home: Path

    def client(self) -> "MlflowClient":
        """A client whose database is there; a process makes one per URI.

        The first one opens the store, which would make or migrate a database: under the lock.
        """
        client = _clients.get((self.uri, os.getpid()))
        if client is None:
            configure()
            from mlflow import MlflowClient

            with self.lock("mlflow"):
                if self.is_database:
                    self._make_database()
                client = MlflowClient(self.uri, registry_uri=self.uri)
                if self.is_database:
                    client.search_experiments(max_results=1)
                    client.search_registered_models(max_results=1)
            _clients[self.uri, os.getpid()] = client
        return client

    def _make_database(self) -> None:
        """A new SQLite file is filled under another name first: killed midway, it is not there."""
        file = self._sqlite_file
        if file is None or self.is_made:
            return
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{file.name}.new")
        for left in file.parent.glob(f"{draft.name}*"):
            left.unlink()
        SqlAlchemyStore(f"sqlite:///{draft}", str(self.artifacts)).engine.dispose()
        with draft.open("rb") as handle:
            os.fsync(handle.fileno())
        os.replace(draft, file)

    def said(self, error: Exception) -> str:
        """Return what went wrong, in one line that holds no credentials."""
        lines = str(error).strip().splitlines()
        text = f"{_without_secrets(self.uri)}: {lines[0] if lines else type(error).__name__}"
        for secret in password_forms(self.uri):
            text = text.replace(secret, "***")
        text = _without_secrets(text)
        return text if len(text) <= 400 else f"{text[:400]}..."

    @property
    def artifacts(self) -> Path:
        """Return where artifacts go when ``uri`` is a database; a server decides that itself."""
        return self.home.absolute() / "mlartifacts"

    @property
    def is_database(self) -> bool:
        return urlsplit(self.uri).scheme.split("+")[0] in ("sqlite", "postgresql", "mysql", "mssql")

    @property
    def is_made(self) -> bool:
        """Return whether a database of this machine is there; of another one it is not asked."""
        file = self._sqlite_file
        return file is None or (file.is_file() and file.stat().st_size > 0)

    @property
    def _sqlite_file(self) -> Path | None:
        scheme, found, path = self.uri.partition(":///")
        return Path(path.split("?")[0]) if found and scheme.startswith("sqlite") and path else None

    @contextmanager
    def lock(self, name: str) -> Iterator["LastWriter"]:
        """One process and one thread at a time; the death of the holder frees it."""
        folder = self.home / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(f"{self.uri} {name}".encode()).hexdigest()[:16]
        with (folder / f"mlflow-{digest}.lock").open("a+") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield LastWriter(handle)


@dataclass(frozen=True)
class LastWriter:
    """Says who wrote last under a lock: what is remembered holds only for that one."""

    handle: IO[str]

    def is_not(self, writer: str) -> bool:
        self.handle.seek(0)
        return self.handle.read() != writer

    def becomes(self, writer: str) -> None:
        self.handle.truncate(0)
        self.handle.write(writer)
        self.handle.flush()


_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # its own default of 7 stalls a call for minutes
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",  # it is decided when mlflow is imported
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",  # or each new database tells of its tables
    "GIT_PYTHON_REFRESH": "quiet",  # or a machine without git gets a page of advice
}


def configure() -> None:
    """MLflow takes its policy from the environment only; what the user set there stands."""
    for name, value in _DEFAULTS.items():
        if name not in os.environ:
            os.environ[name] = value
    # it prints the address of a run that ended, with the password that is in it
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"


def _without_secrets(text: str) -> str:
    text = re.sub(r"://[^/\s]*@", "://", text)
    return re.sub(r"(?i)\b(password|passwd|pwd|token|secret|sslpassword)=[^&\s;]+", r"\1=***", text)
