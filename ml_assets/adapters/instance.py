"""Dagster's instance on one machine: the class that ``dagster.yaml`` names."""

import logging
import os
import sqlite3
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any, get_type_hints

import click
import dagster as dg

from ml_assets.errors import MlAssetsError, StateInUse
from ml_assets.settings import read_settings
from ml_assets.settings.addresses import require_free
from ml_assets.store import home
from ml_assets.store.home import exclusive

_TEMPORARY = ".tmp_dagster_home_"
"""How Dagster begins the name of the folder that it makes where DAGSTER_HOME is not set."""
_LOG = logging.getLogger("dagster")


class Instance(dg.DagsterInstance):
    """Dagster's own instance that lies in the state folder and serves one daemon at a time."""

    @staticmethod
    def config_schema() -> Mapping[str, Any]:
        """The keys of the configuration: Dagster's own and no more."""
        return {}

    @staticmethod
    def config_defaults(base_dir: str) -> Mapping[str, Any]:
        """What ``dagster.yaml`` leaves out; asked by a command, not by the processes it starts.

        Raises:
            click.ClickException: in one line why there is no such instance.
        """
        try:
            folder = _folder(base_dir)
            if _is_a_server():
                refuse_second_daemon(folder)
                _refuse_taken_port()
        except MlAssetsError as error:
            raise click.ClickException(str(error)) from error
        reference = get_type_hints(dg.DagsterInstance.from_ref)["instance_ref"]
        return reference.config_defaults(str(folder))

    def add_daemon_heartbeat(self, daemon_heartbeat: Any) -> None:
        """Take the sign of life of one thread of a daemon; the first is given before any work.

        Raises:
            SystemExit: another process is the daemon. It ends the thread, and Dagster the process.
        """
        try:
            _daemons.hold(Path(self.root_directory))
        except StateInUse as error:
            _LOG.error("%s", error)
            raise SystemExit(1) from error
        super().add_daemon_heartbeat(daemon_heartbeat)

    def handle_new_event(self, event: Any, *, batch_metadata: Any = None) -> None:
        """Store an event, with the logs that it goes into kept open for the next one."""
        super().handle_new_event(event, batch_metadata=batch_metadata)
        path_of = getattr(self.event_log_storage, "path_for_shard", None)
        if path_of is not None:  # SQLite; a server keeps its connections itself
            _open_logs.keep(path_of("index"), path_of(event.run_id))


def refuse_second_daemon(dagster_home: Path) -> None:
    """Return where no daemon is at work.

    Raises:
        StateInUse: another process is the daemon of this folder.
    """
    with _daemon_lock(dagster_home):
        pass


def _is_a_server() -> bool:
    """Whether this is ``dagster dev``, ``dg dev`` or ``dagster-daemon run``: with a daemon."""
    if Path(sys.argv[0]).name == "dagster-daemon":
        return "run" in sys.argv
    return bool(os.environ.get("DAGSTER_IS_DEV_CLI")) and "dev" in sys.argv


def _refuse_taken_port() -> None:
    """Return where Dagster's web server may listen: its own end is a stack, and of this one line.

    Raises:
        SettingsError: another program has the port that the command names.
    """
    command = click.get_current_context(silent=True)
    asked = command.params if command else {}
    if port := asked.get("port"):  # without one Dagster takes a free one
        require_free(asked.get("host") or "127.0.0.1", int(port), "Dagster", "-p")


def _folder(base_dir: str) -> Path:
    """The folder that was asked for; instead of a temporary one, that of the state."""
    if not Path(base_dir).name.startswith(_TEMPORARY):
        return Path(base_dir)
    settings = read_settings()
    home.prepare(settings)
    _LOG.info("It is not used: the instance lies in %s, as for ml-assets.", settings.dagster_home)
    return settings.dagster_home


def _daemon_lock(dagster_home: Path) -> AbstractContextManager[None]:
    remedy = "Open the one that is served, stop it first, or set ML_ASSETS_HOME to another folder."
    return exclusive(dagster_home / "daemon.lock", "Dagster's daemon", remedy)


class _Daemons:
    """The folders whose daemon this process is, as long as it lives."""

    def __init__(self) -> None:
        self._held: set[Path] = set()
        self._holding = threading.Lock()
        self._stack = ExitStack()

    def hold(self, dagster_home: Path) -> None:
        with self._holding:
            if dagster_home not in self._held:
                self._stack.enter_context(_daemon_lock(dagster_home))
                self._held.add(dagster_home)


_daemons = _Daemons()


class _OpenLogs:
    """One reader of Dagster's index and one of the newest run's log, in this process.

    Dagster opens a file of SQLite for each event and closes it. The last one that closes it copies
    the write-ahead log into the file, with several syncs: while a reader stays, none is the last.
    """

    def __init__(self) -> None:
        self._readers: dict[str, sqlite3.Connection] = {}
        self._opening = threading.Lock()

    def keep(self, *paths: str) -> None:
        """Read these files, and no others any more."""
        if self._readers.keys() == set(paths):
            return
        with self._opening:
            for path in self._readers.keys() - set(paths):
                self._readers.pop(path).close()
            for path in set(paths) - self._readers.keys():
                with suppress(sqlite3.Error):  # it is only slower
                    self._readers[path] = _reader(path)


def _reader(path: str) -> sqlite3.Connection:
    reader = sqlite3.connect(f"file:{path}?mode=rw", uri=True, check_same_thread=False)
    reader.execute("SELECT 1 FROM sqlite_master").fetchone()  # only now is the log opened
    return reader


_open_logs = _OpenLogs()
