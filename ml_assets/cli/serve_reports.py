"""ml-assets serve-reports: the reports alone, for a login that stands before them."""

import argparse
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from ml_assets.actions.servers import stoppable
from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.session import prepared_settings
from ml_assets.settings import Settings


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "serve-reports",
        help="serve the reports alone, on this machine, to a proxy that asks who is there",
        description="Serves the evaluation reports, experiments and data cards on the loopback"
        " address, as the proxy at ML_ASSETS_REPORTS_URL asks for them. Nothing is changed.",
    )
    parser.add_argument("--port", type=port_number, default=3001, help="default: 3001")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    settings = prepared_settings()
    with stoppable(), serving(settings, arguments.port):
        print(f"Reports: {settings.reports_url}, from 127.0.0.1:{arguments.port}", flush=True)
        while True:
            signal.pause()
    return DONE


def port_number(text: str) -> int:
    """A port as an option gives it."""
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: give a number from 1 to 65535")
    return int(text)


@contextmanager
def serving(settings: Settings, port: int | None = None) -> Iterator[None]:
    """The reports of the stores that the settings name; see ``serving_reports``."""
    from ml_assets.actions.card_page import served_card
    from ml_assets.actions.report_server import serving_reports
    from ml_assets.extras.experiments import page_of
    from ml_assets.store.open import open_objects

    pages = settings.cache / "reports"
    refresh = partial(open_objects(settings.objects, settings.cache).refresh, "reports")
    with serving_reports(pages, settings.reports_url, page_of, served_card, refresh, port):
        yield
