"""ml-assets drift: what the last report says of new data, in words."""

import argparse
from typing import TYPE_CHECKING

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.session import prepared_settings

if TYPE_CHECKING:
    from ml_assets.assets.drift_report.findings import DriftReport


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "drift",
        help="how far new data is from what the release was trained on",
        description="Prints the last drift report: what was judged, against what, and what stands."
        " It is made by itself when a period lands, and by ml-assets run.",
    )
    parser.add_argument("pipeline")
    parser.add_argument("--json", action="store_true", help="the whole report as one JSON document")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    settings = prepared_settings()
    from ml_assets.assets.drift_report.last_report import find_report
    from ml_assets.store.pipeline_context import open_pipeline

    found = find_report(open_pipeline(arguments.pipeline, settings))
    if arguments.json:
        print(found.report.model_dump_json(indent=2))
        return DONE
    _print(found.report)
    if found.outdated:
        print(f"  note: {found.outdated}")
    return DONE


def _print(report: "DriftReport") -> None:
    from ml_assets.assets.drift_report.verdict import TITLES, said

    first, last = report.trained_on
    judged = ", ".join(window.period for window in report.windows)
    print(f"{report.pipeline}: {said(report)}")
    print(
        f"  {judged} against model {report.model[:12]}, trained on {report.training_rows:,} rows of"
        f" {first} to {last}; bounds back-tested on {report.back_tested} periods"
    )
    for outcome in report.outcomes:
        mark = "ALARM" if outcome.alarm else "ok" if outcome.value is not None else "-"
        print(f"  [{mark}] {TITLES[outcome.kind]}: {outcome.reason}")
    for note in report.notes:
        print(f"  note: {note}")
