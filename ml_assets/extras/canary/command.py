"""ml-assets release promote: judge the model in canary, and promote it if it passes."""

import click

from ml_assets.cli import options
from ml_assets.cli.output import tell
from ml_assets.cli.session import working_session
from ml_assets.cli.status import print_release
from ml_assets.errors import SpecError


@click.command
@options.pipeline
def promote(pipeline: str) -> None:
    """Judge the model in canary, and promote it if it passes.

    For pipelines whose spec asks for it (release.canary). Scores the model in canary and the
    champion on the first partitions after the holdout, decides by the declared gate, and moves the
    model to production if it passes. `ml-assets run` does this, too. Exit code 3: the rows are not
    there yet, or the model did not pass.
    """
    with working_session(f"promote {pipeline}", pipeline) as session:
        from ml_assets.actions.run.run import PipelineRun
        from ml_assets.extras.canary.entry import canary_candidate
        from ml_assets.store.pipeline_context import open_pipeline

        opened = open_pipeline(pipeline, session.settings)
        if opened.spec.release.canary == "none":
            raise SpecError(
                f"{pipeline} asks for no canary: a model that passes its gates goes directly to "
                f"{opened.spec.release.to}. To ask for one, add to its spec: release: {{to: "
                "production, canary: {periods: 1}}"
            )
        PipelineRun(opened, session.defs, session.instance, tell).make_alone(canary_candidate)
        print_release(opened)
