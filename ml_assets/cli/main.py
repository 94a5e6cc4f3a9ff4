"""ml-assets: the command line. Parses, calls one noun's function, and maps errors to exit codes."""

import argparse
import sys
from collections.abc import Sequence

from ml_assets.cli import check, demo, new, report, reset, run, status, ui
from ml_assets.cli.exit_codes import DONE, ERROR, REFUSED
from ml_assets.errors import EvidenceError, MlAssetsError

_COMMANDS = (demo, run, new, check, status, report, ui, reset)
_EPILOG = """
exit codes: 0 done, 1 error, 2 wrong usage, 3 refused by a gate

environment:
  ML_ASSETS_HOME       state folder (default .ml_assets)
  ML_ASSETS_SOURCES    root of relative source paths (default: the demo's outside world)
  ML_ASSETS_SQL_<NAME> SQLAlchemy URL of the SQL connection <NAME>
  ML_ASSETS_PIPELINES  more folders that hold pipelines, separated like PATH
  MLFLOW_TRACKING_URI  MLflow server (default: a database in the state folder)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parsed = parser().parse_args(arguments)
    try:
        return parsed.call(parsed)
    except MlAssetsError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED if isinstance(error, EvidenceError) else ERROR
    except KeyboardInterrupt:
        print("stopped; run again to go on where it stopped", file=sys.stderr)
        return ERROR
    except BrokenPipeError:
        return DONE


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
