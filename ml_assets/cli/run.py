"""ml-assets run: make what is due of a pipeline."""

import argparse
import time
from typing import TYPE_CHECKING

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.session import Session, working_session
from ml_assets.spec.stages import DATA_STAGES, MODEL_STAGES

if TYPE_CHECKING:
    from ml_assets.actions.run.run import Request

_THROUGH = [stage for stage in (*DATA_STAGES, *MODEL_STAGES) if stage != "checkpoints"]

_WORDS = {
    "experiment": "what the run belongs to; shown by ml-assets experiments, no result hangs on it",
    "hypothesis": "what you expect of it, and why",
    "goal": "when it is a success",
}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "run",
        help="make what is due of a pipeline, and say what was skipped and why",
        description="Compares every asset with what it would be made from now, makes what differs,"
        " and says what it skipped. Interrupted work is taken up where it stopped.",
    )
    parser.add_argument("pipeline")
    parser.add_argument("--as-of", metavar="PARTITION", help="last partition of the holdout")
    parser.add_argument("--through", choices=_THROUGH, help="stop after this stage")
    parser.add_argument(
        "--fresh",
        action=argparse.BooleanOptionalAction,
        help="train again from nothing; interrupted, the next run goes on with it, and --no-fresh"
        " drops it",
    )
    parser.add_argument(
        "--epochs",
        type=int,
        metavar="N",
        help="train for N epochs instead of the spec's; the next run without it trains again",
    )
    for name, about in _WORDS.items():
        parser.add_argument(f"--{name}", metavar="TEXT", help=about)
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.run.run import Request
    from ml_assets.records.experiments import Words

    request = Request(
        arguments.pipeline,
        as_of=arguments.as_of,
        through=arguments.through,
        fresh=arguments.fresh,
        epochs=arguments.epochs,
        words=Words.of({name: getattr(arguments, name) for name in _WORDS}),
    )
    with working_session(f"run {arguments.pipeline}", arguments.pipeline) as session:
        run_pipeline(session, request)
    return DONE


def run_pipeline(session: Session, request: "Request") -> None:
    """Run a pipeline in an open session and print where its release stands."""
    from ml_assets.actions.run.run import PipelineRun
    from ml_assets.cli.status import print_release
    from ml_assets.store.pipeline_context import open_pipeline

    started = time.monotonic()
    pipeline = open_pipeline(request.pipeline, session.settings)
    run = PipelineRun(pipeline, session.defs, session.instance, tell)
    run.run(request)
    print(f"\ndone in {time.monotonic() - started:.0f} s")
    print_release(pipeline, session.settings)


def tell(line: str) -> None:
    """Print a line of progress at once."""
    print(line, flush=True)
