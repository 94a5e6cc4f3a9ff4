"""ml-assets ui: the Dagster UI and its daemon, on this machine only."""

import argparse
import os
import signal
import sys

from ml_assets.cli.session import prepared_settings
from ml_assets.runs.home import PROJECT


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("ui", help="open the Dagster UI at http://127.0.0.1:3000")
    parser.add_argument("--port", type=int, default=3000)
    parser.add_argument("--host", default="127.0.0.1", help="there is no login: keep it local")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    prepared_settings()
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(PROJECT / "workspace.yaml")]
    command += ["-h", arguments.host, "-p", str(arguments.port)]
    print(f"Dagster UI: http://{arguments.host}:{arguments.port}  (Ctrl-C stops it)", flush=True)
    # a background shell hands SIGINT down ignored, and Dagster then ignores SIGTERM as well
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # the same process: Ctrl-C and SIGTERM reach Dagster itself
    os.execv(sys.executable, command)
