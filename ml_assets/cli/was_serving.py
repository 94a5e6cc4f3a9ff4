"""ml-assets was-serving: which model was in production at a time."""

import argparse
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ml_assets.cli.exit_codes import DONE
from ml_assets.settings import read_settings

if TYPE_CHECKING:
    from ml_assets.spec.records import LedgerEntry


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "was-serving",
        help="which model of a pipeline was in production at a time, and by whose word",
        description="Asks the ledger which model was in the stage that the pipeline releases to.",
    )
    parser.add_argument("pipeline")
    parser.add_argument(
        "--at",
        required=True,
        type=_time,
        metavar="TIME",
        help="with a time zone: 2026-03-01T12:00Z, 2026-03-01T13:00+01:00, or a day: 2026-03-01"
        " (its beginning, UTC)",
    )
    parser.add_argument("--json", action="store_true", help="the lines of the ledger, as JSON")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.history import was_serving
    from ml_assets.store.pipeline_context import open_pipeline

    found = was_serving(open_pipeline(arguments.pipeline, read_settings()), arguments.at)
    if arguments.json:
        print(
            json.dumps(
                {
                    "at": found.at.isoformat(),
                    "model": found.entry.model,
                    "stage": found.entry.stage,
                    "since": found.entry.model_dump(mode="json"),
                    "until": found.until.model_dump(mode="json") if found.until else None,
                },
                indent=2,
            )
        )
        return DONE
    print(f"{arguments.pipeline}: model {found.entry.model} was in {found.entry.stage}")
    print(f"  since {_said(found.entry)}")
    print(f"  until {_said(found.until)}" if found.until else "  and is there still")
    return DONE


def _said(entry: "LedgerEntry") -> str:
    when = f"{entry.time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"{when}, line {entry.seq} of {entry.author}: {entry.reason}"


def _time(text: str) -> datetime:
    """A time with its zone; a bare day begins at midnight, UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; write it as 2026-03-01T12:00Z"
        ) from error
    if found.tzinfo is None and len(text) == len("2026-03-01"):
        return found.replace(tzinfo=UTC)
    if found.tzinfo is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} does not say its time zone: add Z for UTC, or an offset such as +01:00"
        )
    return found
