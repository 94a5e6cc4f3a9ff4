"""Servers: ml-assets ui opens everything on this machine, ops serve-reports the reports alone."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import click

from ml_assets.actions.reload import definitions_served
from ml_assets.actions.servers import Programs, free_port, stoppable
from ml_assets.cli import options
from ml_assets.cli.output import DONE, ERROR
from ml_assets.cli.session import prepared_settings
from ml_assets.records.tracking.links import Links
from ml_assets.settings import Settings, read_settings
from ml_assets.settings.addresses import beside, is_served, require_free

_PORT = options.Whole(1, 65535)


@click.command
@click.option(
    "--port",
    type=_PORT,
    help="Dagster's port. The reports and MLflow use the next two free ones, unless "
    "their addresses are set.  [default: that of ML_ASSETS_UI_URL]",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on. There is no login, so keep it local. "
    "ML_ASSETS_UI_HOSTS lists the names that a browser may use.",
)
def ui(port: int | None, host: str) -> int:
    """Open Dagster in a browser, with MLflow and the reports.

    Serves the Dagster UI at http://127.0.0.1:3000, MLflow's pages, and at http://127.0.0.1:3001 a
    first page with the state of each pipeline and the evaluation reports, so that the links between
    them work. Ctrl-C stops all three. ML_ASSETS_UI_URL, ML_ASSETS_MLFLOW_URL and
    ML_ASSETS_REPORTS_URL set the addresses; one on another machine is assumed to be served already.
    """
    from ml_assets.actions.servers import SOCKET, dagster_programs, is_local, mlflow_program
    from ml_assets.adapters.instance import refuse_second_daemon  # Dagster takes a second to import
    from ml_assets.store.home import SERVED_AT

    moved = port is not None and port != urlsplit(read_settings().ui_url).port
    if port is not None:
        os.environ.update(beside(port, free_port))  # links of runs that it starts lead there, too
    settings = prepared_settings()
    refuse_second_daemon(settings.dagster_home)
    port = port or urlsplit(settings.ui_url).port or 3000
    require_free(host, port, "Dagster", "that of ML_ASSETS_UI_URL, or --port")
    here = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    os.environ[SERVED_AT] = here
    code = DONE
    with stoppable(), ExitStack() as stack:
        if is_local(settings.reports_url):
            stack.enter_context(_serving(settings))
        _tell(here, settings, links_here=is_local(settings.ui_url))
        if moved:
            print(
                "Links in pages of earlier runs lead to the earlier ports. To keep those, set"
                f" ML_ASSETS_UI_URL={settings.ui_url} ML_ASSETS_REPORTS_URL={settings.reports_url}"
                f" ML_ASSETS_MLFLOW_URL={settings.mlflow_url}",
                flush=True,
            )
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="ml-assets-ui-")))
        location, *served = dagster_programs(host, port, settings, folder)
        programs = stack.enter_context(Programs(_warn))
        for program in (location, *mlflow_program(settings)):
            programs.start(program)
        if programs.wait(until=(folder / SOCKET).exists) != DONE:  # the others ask it at once
            return ERROR
        for program in served:
            programs.start(program)
        if programs.wait(until=partial(is_served, host, port)) != DONE:
            return ERROR
        print(f"Dagster is ready: {here}", flush=True)
        stack.enter_context(definitions_served(here, _warn))
        code = programs.wait()
    return DONE if code == DONE else ERROR


def _warn(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _tell(here: str, settings: Settings, *, links_here: bool) -> None:
    print(f"Dagster: {here}  (in a few seconds; Ctrl-C stops all)")
    print(f"MLflow:  {Links.of(settings).tracking()}")
    print(f"Reports: {settings.reports_url}  (start here: the pipelines' state)", flush=True)
    if here != settings.ui_url and links_here:
        print(f"links lead to {settings.ui_url}: set ML_ASSETS_UI_URL={here}", flush=True)


@click.command
@click.option("--port", type=_PORT, default=3001, show_default=True, help="The port on 127.0.0.1.")
def serve_reports(port: int) -> None:
    """Serve only the reports, to a proxy on this machine.

    Serves the evaluation reports, experiments and data cards on the loopback address, for the proxy
    at ML_ASSETS_REPORTS_URL. It changes nothing.
    """
    settings = prepared_settings()
    with stoppable(), _serving(settings, port):
        print(f"Reports: {settings.reports_url}, from 127.0.0.1:{port}", flush=True)
        while True:
            signal.pause()


@contextmanager
def _serving(settings: Settings, port: int | None = None) -> Iterator[None]:
    """The reports of the stores that the settings name; see ``serving_reports``."""
    from ml_assets.actions.card_page import served_card
    from ml_assets.actions.experiments import page_of
    from ml_assets.actions.home_page import states
    from ml_assets.actions.report_server import serving_reports
    from ml_assets.store.open import open_objects

    pages = settings.cache / "reports"
    refresh = partial(open_objects(settings.objects, settings.cache).refresh, "reports")
    with serving_reports(
        pages,
        settings.reports_url,
        partial(page_of, settings),
        partial(served_card, settings),
        refresh,
        port,
        partial(states, settings),
    ):
        yield
