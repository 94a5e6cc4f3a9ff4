"""ml-assets experiments: the last runs of a pipeline side by side."""

import argparse
import json
import webbrowser

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.history import aligned
from ml_assets.settings import read_settings


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "experiments",
        help="the last runs side by side: what was tried, why, and what came of it",
        description="Every run that trained or judged a model, refused and failed too: metrics,"
        " losses, time, cost, data, decision, stage and its author's words. Writes a page that"
        " sorts by any column, and prints the short form.",
    )
    parser.add_argument("pipeline")
    parser.add_argument("--last", type=_count, default=20, metavar="N", help="runs (default 20)")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("--json", action="store_true", help="everything, for a program")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.extras.experiments import document, write_page
    from ml_assets.records.run_lines import rows
    from ml_assets.reports.run_rows import short_table
    from ml_assets.store.pipeline_context import open_pipeline

    pipeline = open_pipeline(arguments.pipeline, read_settings())
    if arguments.json:
        print(json.dumps(document(pipeline, arguments.last), indent=2))
        return DONE
    found = rows(pipeline, arguments.last)
    if not found:
        print(f"{pipeline.name}: no run is written down yet; run: ml-assets run {pipeline.name}")
        return DONE
    shown = short_table(found, arguments.last)
    for line in aligned([tuple(shown.head), *(tuple(row) for row in shown.rows)]):
        print(line)
    page = write_page(pipeline, arguments.last)
    print(page)
    if arguments.open:
        webbrowser.open(page.as_uri())
    return DONE


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000")
    return int(text)
