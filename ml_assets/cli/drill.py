"""ml-assets drill: kill a short training, and see whether it ends in the same weights."""

import argparse

from ml_assets.cli.exit_codes import DONE, ERROR
from ml_assets.cli.run import tell
from ml_assets.cli.session import working_session


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "drill",
        help="kill a short training of a pipeline, and see that it ends in the same weights",
        description="Trains the newest training set for a few steps, twice; one process of the"
        " second training is killed at a random step. Both have to end in the same weights, bit for"
        " bit; exit code 1 if not. The outcome is the check resume_drill on checkpoints. What is"
        " trained for it is deleted; sessions and models of the pipeline are not touched.",
    )
    parser.add_argument("pipeline")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    pipeline = arguments.pipeline
    with working_session(f"drill {pipeline}", pipeline) as session:
        from ml_assets.actions.run.execute import execute
        from ml_assets.automation.planner.selection import Selection
        from ml_assets.automation.resume_drill import drilled, require_drill
        from ml_assets.store.pipeline_context import open_pipeline

        opened = open_pipeline(pipeline, session.settings)
        check = require_drill(opened)
        selection = Selection(checks=(check,))
        run = execute(session.defs, session.instance, pipeline, selection, tell)
        return DONE if drilled(session.instance, run) else ERROR
