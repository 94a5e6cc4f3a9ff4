"""ml-assets card: what a table holds, as one HTML page."""

import argparse
import webbrowser

from ml_assets.cli.exit_codes import DONE
from ml_assets.settings import read_settings


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "card",
        help="write the data card of a table and say where it is",
        description="What a table holds: distributions, missing values, repeated rows, labels by"
        " group and period, a few rows. TABLE is a source (the rows that meet its contract), a"
        " table of the team's own, feature_set or training_set.",
    )
    parser.add_argument("pipeline")
    parser.add_argument("table")
    parser.add_argument("--partition", help="default: all of them added up")
    parser.add_argument("--open", action="store_true", help="open it in a browser")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.card_page import write_card
    from ml_assets.store.pipeline_context import open_pipeline

    pipeline = open_pipeline(arguments.pipeline, read_settings())
    page = write_card(pipeline, arguments.table, arguments.partition)
    print(page)
    if arguments.open:
        webbrowser.open(page.as_uri())
    return DONE
