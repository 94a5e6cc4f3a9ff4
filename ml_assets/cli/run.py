"""ml-assets run: make every due asset of a pipeline."""

import time
from typing import TYPE_CHECKING

import click

from ml_assets.cli import options
from ml_assets.cli.screen import screen
from ml_assets.cli.session import Session, working_session
from ml_assets.cli.status import print_release
from ml_assets.spec.stages import DATA_STAGES, MODEL_STAGES

if TYPE_CHECKING:
    from ml_assets.actions.run.run import Request

_THROUGH = [stage for stage in (*DATA_STAGES, *MODEL_STAGES) if stage != "checkpoints"]


@click.command
@options.pipeline
@click.option("--as-of", metavar="PARTITION", help="The last partition of the holdout.")
@click.option("--through", type=click.Choice(_THROUGH), help="Stop after this stage.")
@click.option(
    "--fresh/--no-fresh",
    default=None,
    help="Train again from nothing. If interrupted, the next run continues it, and "
    "--no-fresh drops it.",
)
@click.option(
    "--epochs",
    type=int,
    metavar="N",
    help="Train for N epochs instead of the spec's. The next run without it trains again.",
)
@click.option(
    "--search",
    is_flag=True,
    help="First search for a better setting: the study of search.yaml, which runs only once.",
)
@click.option(
    "--experiment",
    metavar="TEXT",
    help="The experiment that the run belongs to, for `ml-assets models experiments`. It"
    " changes no result.",
)
@click.option("--hypothesis", metavar="TEXT", help="What you expect of the run, and why.")
@click.option("--goal", metavar="TEXT", help="The result that would be a success.")
@options.verbose
def run(
    pipeline: str,
    as_of: str | None,
    through: str | None,
    fresh: bool | None,
    epochs: int | None,
    search: bool,
    verbose: bool,
    **words: str | None,
) -> None:
    """Make every asset that is due, and say what was skipped.

    Compares every asset with its current inputs and code, makes each one that is out of date, and
    says what it skipped and why. Interrupted work continues where it stopped.

    \b
      ml-assets run flight_delays
      ml-assets run flight_delays --through feature_set
      ml-assets run flight_delays --search
    """
    from ml_assets.actions.run.run import Request
    from ml_assets.records.experiments import Words

    request = Request(
        pipeline,
        as_of=as_of,
        through=through,
        fresh=fresh,
        epochs=epochs,
        search=search,
        words=Words.of(words),
    )
    with working_session(f"run {pipeline}", pipeline) as session:
        run_pipeline(session, request, verbose=verbose)


def run_pipeline(session: Session, request: "Request", *, verbose: bool = False) -> None:
    """Run a pipeline in an open session and print where its release stands, and where to look.

    Args:
        verbose: a line for each partition and check.
    """
    from ml_assets.actions.run.run import PipelineRun
    from ml_assets.store.pipeline_context import open_pipeline

    started = time.monotonic()
    pipeline = open_pipeline(request.pipeline, session.settings)
    with screen(verbose=verbose) as tell:
        PipelineRun(pipeline, session.defs, session.instance, tell).run(request)
    print(f"done in {time.monotonic() - started:.0f} s")
    print_release(pipeline, session.settings)
    print("look: ml-assets ui")
    if not request.through:
        print(f"      ml-assets models report {pipeline.name} --open")
    if request.search:
        print(f"      ml-assets models search {pipeline.name} --open")
