"""ml-assets reliability: what ran by itself, and how much of it ended well."""

import argparse
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.history import aligned
from ml_assets.cli.session import prepared_settings

if TYPE_CHECKING:
    from ml_assets.extras.reliability import Reliability


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "reliability",
        help="what schedules and sensors ran, how much of it ended well, and why the rest did not",
        description="Counts what schedules and sensors asked for. A success ends well, and so does"
        " a model that a gate refused; a failure does not, nor does a tick that never came. What"
        " was tried several times for one thing counts once.",
    )
    parser.add_argument("pipeline", nargs="?", help="default: every pipeline")
    parser.add_argument("--days", type=_days, default=30, metavar="N", help="looked back (30)")
    parser.add_argument("--json", action="store_true", help="everything, for a program")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    settings = prepared_settings()
    import dagster as dg

    from ml_assets.extras.reliability import reliability
    from ml_assets.spec.load import find_pipeline, load_spec, pipeline_folders

    known = pipeline_folders(settings)
    wanted = arguments.pipeline
    folders = [find_pipeline(known, wanted)] if wanted else [*known.values()]
    now = datetime.now(UTC)
    since = now - timedelta(days=arguments.days)
    with dg.DagsterInstance.get() as instance:
        found = [reliability(load_spec(folder), instance, since, now) for folder in folders]
    if arguments.json:
        print(json.dumps([_document(one) for one in found], indent=2))
        return DONE
    for one in found:
        _tell(one, arguments.days)
    return DONE


def _tell(found: "Reliability", days: int) -> None:
    if found.share is None:
        waiting = f" {found.under_way} under way." if found.under_way else ""
        print(f"{found.pipeline}: nothing has run by itself in the last {days} days.{waiting}")
        return
    print(
        f"{found.pipeline}: {found.well} of {len(found.work)} ended well ({found.share:.1%}) in the"
        f" last {days} days; {found.under_way} under way"
    )
    refused = sum(1 for work in found.work if work.end == "refused")
    if refused:
        print(f"  {refused} of them refused by a gate, which is a good end")
    for cause, count in found.causes:
        print(f"  {count} x {cause}")
    rows = [
        (f"{work.time:%Y-%m-%d %H:%M}", work.end, (work.runs or ("",))[-1][:8], work.what)
        for work in found.work
        if work.end in ("failed", "missed")
    ]
    for line in aligned(rows):
        print(f"    {line}")


def _document(found: "Reliability") -> dict[str, Any]:
    return {
        **found.model_dump(mode="json"),
        "scheduled": len(found.work),
        "well": found.well,
        "share": found.share,
        "causes": dict(found.causes),
    }


def _days(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 3650:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 3650")
    return int(text)
