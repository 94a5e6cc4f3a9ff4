"""ml-assets suspects: rows whose label may be wrong."""

import argparse

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.tables import add_output, hand_out, output_format
from ml_assets.settings import read_settings


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "suspects",
        help="rows whose label may be wrong: those with the highest loss",
        description="Rows of validation and holdout that the newest model is most wrong about, the"
        " highest loss first: their key, label, prediction and loss.",
    )
    parser.add_argument("pipeline")
    add_output(parser, default="table")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.assets.evaluation_report.label_suspects import suspects
    from ml_assets.store.pipeline_context import open_pipeline

    kind = output_format(arguments)
    rows = suspects(open_pipeline(arguments.pipeline, read_settings()))
    hand_out(rows, arguments.output, kind)
    return DONE
