"""Dagster's instance on one machine: the class that ``dagster.yaml`` names."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import click
import dagster as dg

from ml_assets.errors import MlAssetsError, StateInUse
from ml_assets.settings import read_settings
from ml_assets.settings.addresses import require_free
from ml_assets.store import home
from ml_assets.store.home import SERVED_AT, daemon_lock

_TEMPORARY = ".tmp_dagster_home_"
"""How Dagster begins the name of the folder that it makes where DAGSTER_HOME is not set."""
_LOG = logging.getLogger("dagster")


class Instance(dg.DagsterInstance):
    """Dagster's own instance that lies in the state folder and serves one daemon at a time."""

    def __init__(self, *given: Any, **named: Any) -> None:
        from ml_assets.adapters.open_databases import hold_open

        super().__init__(*given, **named)
        hold_open(Path(self.root_directory))

    @staticmethod
    def config_schema() -> Mapping[str, Any]:
        """The keys of the configuration: Dagster's own and no more."""
        return {}

    @staticmethod
    def config_defaults(base_dir: str) -> Mapping[str, Any]:
        """Return what ``dagster.yaml`` leaves out; asked by a command, not by the processes it
        starts.

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

    def handle_new_event(self, *given: Any, **named: Any) -> None:
        """Write an event of a run down; a signal that comes meanwhile is heard after it.

        Dagster raises from its signal's handler wherever the program is. Between two lines of its
        event log that would leave the log's lock taken, and the run would wait for it for ever.
        """
        with _signals_later():
            super().handle_new_event(*given, **named)

    @property
    def compute_log_manager(self) -> Any:
        """Dagster's own, which keeps what steps print, with helpers that Ctrl-C does not reach.

        A terminal sends it to every process of the command: the helpers that copy the output would
        each end with a stack. They end with their step.
        """
        manager: Any = super().compute_log_manager
        if "capture_logs" not in vars(manager):
            manager.capture_logs = partial(_captured, manager.capture_logs)
        return manager


@contextmanager
def _captured(capture: Callable[..., Any], *given: Any, **named: Any) -> Iterator[Any]:
    """What Dagster's own does; processes inherit which signals are blocked when they begin."""
    with ExitStack() as capturing:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            found = capturing.enter_context(capture(*given, **named))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield found


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def _signals_later() -> Iterator[None]:
    """Keep the signals of the block for its end; other threads than the main one get none."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    if threading.current_thread() is not threading.main_thread() or None in before.values():
        yield
        return
    came: list[int] = []
    try:
        with ExitStack() as handlers:  # it puts each back, also where a signal cuts in
            for number, handler in before.items():
                handlers.callback(signal.signal, number, handler)
                signal.signal(number, lambda number, _frame: came.append(number))
            yield
    finally:
        for number in came:
            signal.raise_signal(number)


def refuse_second_daemon(dagster_home: Path) -> None:
    """Return where no daemon is at work.

    Raises:
        StateInUse: another process is the daemon of this folder.
    """
    with daemon_lock(dagster_home):
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
    _LOG.info("It is not used: the instance is in %s, as for ml-assets.", settings.dagster_home)
    return settings.dagster_home


class _Daemons:
    """The folders whose daemon this process is, as long as it lives."""

    def __init__(self) -> None:
        self._held: set[Path] = set()
        self._holding = threading.Lock()
        self._stack = ExitStack()

    def hold(self, dagster_home: Path) -> None:
        with self._holding:
            if dagster_home not in self._held:
                served_at = os.environ.get(SERVED_AT, "")
                self._stack.enter_context(daemon_lock(dagster_home, served_at=served_at))
                self._held.add(dagster_home)


_daemons = _Daemons()
