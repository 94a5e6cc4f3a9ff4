"""ml-assets note: write down what came of a run."""

import argparse
import getpass
from typing import get_args

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.session import prepared_settings

VERDICTS = ("confirmed", "rejected", "open")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "note",
        help="write down what came of a run: a verdict on its hypothesis, a note",
        description="Adds a note to a run, with its author and the time. Notes are only added; the"
        " newest is shown. No model, session or decision is changed by it.",
    )
    parser.add_argument("pipeline")
    parser.add_argument(
        "run", metavar="RUN|MODEL", help="beginning of its id or its model's, a stage, or latest"
    )
    parser.add_argument("--verdict", choices=VERDICTS, help="on the hypothesis")
    parser.add_argument("--note", metavar="TEXT", help="what you make of it")
    parser.add_argument("--author", default=None, help="default: the user of this machine")
    parser.set_defaults(call=call, usage=parser.error)


def call(arguments: argparse.Namespace) -> int:
    if not arguments.verdict and not (arguments.note or "").strip():
        arguments.usage("say --verdict, --note, or both")
    settings = prepared_settings()
    from ml_assets.actions.note import take_note, tell_mlflow
    from ml_assets.records.experiments import Verdict
    from ml_assets.store.pipeline_context import open_pipeline

    assert get_args(Verdict) == VERDICTS
    pipeline = open_pipeline(arguments.pipeline, settings)
    author = arguments.author or getpass.getuser()
    story, note = take_note(pipeline, arguments.run, arguments.verdict, arguments.note, author)
    model = f", model {note.model[:12]}" if note.model else ""
    print(f"noted by {note.author} on run {note.run[:8]}{model}")
    behind = tell_mlflow(settings, story, note)
    if behind:
        print(f"MLflow gets it with the next run: {behind}")
    return DONE
