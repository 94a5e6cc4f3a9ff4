"""ml-assets promote: judge the model in canary, and move it to production if it passes."""

import argparse

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.run import tell
from ml_assets.cli.session import working_session


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "promote",
        help="judge the model in canary on what came since, and move it to production",
        description="For pipelines whose spec asks for it (release.canary): scores the model in"
        " canary and the champion on the first partitions behind the holdout, decides by the"
        " declared gate, and moves the model to production if it passes. ml-assets run does it,"
        " too. Exit code 3: the rows are not there yet, or the model did not pass.",
    )
    parser.add_argument("pipeline")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    pipeline = arguments.pipeline
    with working_session(f"promote {pipeline}", pipeline) as session:
        from ml_assets.actions.run.run import PipelineRun
        from ml_assets.cli.status import print_release
        from ml_assets.store.pipeline_context import open_pipeline

        opened = open_pipeline(pipeline, session.settings)
        PipelineRun(opened, session.defs, session.instance, tell).promote()
        print_release(opened, session.settings)
    return DONE
