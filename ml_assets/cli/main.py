"""ml-assets: the command line. Parses, calls one noun's function, and maps errors to exit codes."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from ml_assets.cli import (
    alerts,
    card,
    check,
    compare,
    contract,
    cost,
    data,
    demo,
    drift,
    drill,
    experiments,
    export,
    forget,
    gc,
    generate,
    history,
    land_week,
    logs,
    lookup,
    new,
    note,
    override,
    predict,
    promote,
    prove,
    quarantine,
    read,
    recall,
    reliability,
    render,
    report,
    reset,
    rollback,
    run,
    serve_reports,
    status,
    suspects,
    tune_batch,
    ui,
    verify,
    was_serving,
    what_if,
)
from ml_assets.cli.exit_codes import DONE, ERROR, INTERRUPTED, REFUSED
from ml_assets.errors import EvidenceError, Interrupted, MlAssetsError, visible

_COMMANDS = (
    demo,
    land_week,
    generate,
    run,
    new,
    check,
    status,
    history,
    was_serving,
    what_if,
    promote,
    override,
    rollback,
    drift,
    experiments,
    note,
    compare,
    logs,
    predict,
    lookup,
    prove,
    export,
    verify,
    data,
    read,
    contract,
    quarantine,
    recall,
    reliability,
    cost,
    render,
    report,
    card,
    suspects,
    tune_batch,
    ui,
    serve_reports,
    drill,
    alerts,
    gc,
    forget,
    reset,
)
_EPILOG = """
exit codes: 0 done, 1 error, 2 wrong usage, 3 refused by a gate, 130 interrupted

environment:
  ML_ASSETS_HOME       state folder (default .ml_assets)
  ML_ASSETS_SOURCES    root of relative source paths (default: the demo's outside world)
  ML_ASSETS_SQL_<NAME> SQLAlchemy URL of the SQL connection <NAME>
  ML_ASSETS_PIPELINES  folders that hold pipelines, separated like PATH (default: demo)
  ML_ASSETS_UI_URL, ML_ASSETS_REPORTS_URL, ML_ASSETS_MLFLOW_URL
                       where links lead to (default: what `ml-assets ui` serves)
  ML_ASSETS_SNAPSHOTS  folder or lakefs://repository[/branch] of tables, records and the ledger
  LAKEFS_ENDPOINT, LAKEFS_ACCESS_KEY_ID, LAKEFS_SECRET_ACCESS_KEY, LAKEFS_S3_ENDPOINT
                       the lakeFS server, and the keys to it
  ML_ASSETS_CHECKPOINTS  folder or s3://bucket/prefix of checkpoints (default: the state folder)
  ML_ASSETS_ONLINE     file or redis:// URL of the online store (default: in the state folder)
  ML_ASSETS_RETENTION  how long unused things are kept, e.g. "checkpoints=2d history=8w" (see gc)
  ML_ASSETS_SIGNING_KEY, ML_ASSETS_TRUSTED_KEYS
                       who signs what is written, and whose word counts (default: nobody)
  ML_ASSETS_ALERTS     who is told of trouble: URLs of webhooks, Slack, mail servers (see alerts)
  ML_ASSETS_LAUNCHER   local or kubernetes; of a cluster also (see docs/operate.md)
  ML_ASSETS_OBJECTS, ML_ASSETS_TRAINING_IMAGE, ML_ASSETS_NAMESPACE, ML_ASSETS_TRAINING_SECRET,
  ML_ASSETS_PULL_SECRET, ML_ASSETS_SPOT_SELECTOR, ML_ASSETS_SPOT_TOLERATION
  ML_ASSETS_PRICES     what a GPU-hour costs, and more: "spot=1.10,on-demand=3.75,node=0.40"
  ML_ASSETS_CAPACITY   how machines that are not spot are bought: on-demand or reserved
  MLFLOW_TRACKING_URI  MLflow server (default: a database in the state folder)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what it prints is seen and does nothing else."""
    with redirect_stdout(_seen(sys.stdout)), redirect_stderr(_seen(sys.stderr)):
        return _run(arguments)


class _Seen:
    """A text stream to a terminal, through which no escape sequence of the data comes.

    Rows that are handed out go to the bytes below it, and stay as they are.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(visible(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _seen(stream: TextIO) -> TextIO:
    return cast("TextIO", _Seen(stream))


def _run(arguments: Sequence[str] | None) -> int:
    parsed = parser().parse_args(arguments)
    try:
        return parsed.call(parsed)
    except (KeyboardInterrupt, Interrupted):
        print("interrupted: what was made stays; run again to go on", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return DONE
    except Exception as error:
        found = _ours(error)
        if found is None:
            raise
        print(f"error: {found}", file=sys.stderr)
        return REFUSED if isinstance(found, EvidenceError) else ERROR


def _ours(error: BaseException) -> MlAssetsError | None:
    """The report that an error is, or was caused by; None: a fault of the program, shown whole."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MlAssetsError):
            return cause
        cause = cause.__cause__
    from ml_assets.store.disk import refusal

    return refusal(error)


def parser() -> argparse.ArgumentParser:
    """The parser of every command."""
    top = argparse.ArgumentParser(
        prog="ml-assets",
        description="Train, judge and release models as Dagster assets, with lineage.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for module in _COMMANDS:
        module.add_parser(commands)
    return top


if __name__ == "__main__":
    sys.exit(main())
