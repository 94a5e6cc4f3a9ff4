"""ml-assets report: the evaluation report as one HTML file."""

import argparse
import webbrowser

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.session import prepared_settings


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("report", help="write the evaluation report and say where it is")
    parser.add_argument("pipeline")
    parser.add_argument("--open", action="store_true", help="open it in a browser")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    settings = prepared_settings()

    from ml_assets.actions.run.run import pipeline_graph
    from ml_assets.assets.released_model.report import write_report
    from ml_assets.spec.load import pipeline_folders
    from ml_assets.store.open import open_objects, open_snapshots

    graph = pipeline_graph(pipeline_folders(settings), arguments.pipeline)
    objects = open_objects(settings.objects, settings.cache)
    page = write_report(graph, open_snapshots(settings.snapshots), objects)
    print(page)
    if arguments.open:
        webbrowser.open(page.as_uri())
    return DONE
