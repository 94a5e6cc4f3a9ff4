"""ml-assets check: report every mistake in a pipeline's folder."""

from pathlib import Path

import click

from ml_assets.cli import options
from ml_assets.cli.output import DONE, ERROR
from ml_assets.errors import TrainingFailed, counted
from ml_assets.settings import Settings, read_settings

_MARKS = {"passed": "pass", "warned": "warn", "failed": "FAIL"}


@click.command
@options.any_pipeline
@click.option("--deep", is_flag=True, help="Also check the network against what training requires.")
@click.option(
    "--steps",
    type=options.Whole(min=3),  # a line needs more than two points
    metavar="N",
    help="Also train this many steps on the newest training set.",
)
def check(pipeline: str | None, deep: bool, steps: int | None) -> int:
    """Report every mistake in a pipeline's folder.

    Without PIPELINE it checks the folders of all pipelines. Each mistake has its file, line, key,
    value, rule and remedy. The functions are called on tables without rows; one that needs rows is
    called on those of the newest partition. The command also warns of sources that are not here,
    of drift that could never alarm and of numbers that the model would treat as categories, and
    checks whether the configured cluster permits a training. --deep builds the network and tries it
    on made-up rows in two processes, for a minute: shapes, state, determinism, independent rows,
    shards, resumes. --steps starts a short training and deletes its session; a loss that is NaN or
    does not fall and an incomplete model are mistakes. Exit code 1: there are mistakes.
    """
    from ml_assets.actions.check.check import (
        all_mistakes,
        cluster_trouble,
        missing_here,
        not_looked_at,
        warnings_of,
    )
    from ml_assets.spec.load import find_pipeline, pipeline_folders

    settings = read_settings()
    folders = pipeline_folders(settings)
    mistakes = 0
    for name in [pipeline] if pipeline else sorted(folders):
        folder = find_pipeline(folders, name)
        found = all_mistakes(folder, settings)
        mistakes += len(found)
        good = "no mistake in its files; its network is tried now" if deep else "good"
        print(f"{name}: {counted(len(found), 'mistake') if found else good}")
        for mistake in found:
            print(f"  {mistake}")
        if found and (unseen := not_looked_at(folder)):
            print(f"  note: {unseen}")
        for warning in (*missing_here(folder, settings), *warnings_of(folder, settings)):
            print(f"  warning: {warning}")
        if deep and not found:
            mistakes += _deep(folder, settings)
        if steps and not found:
            mistakes += _steps(name, settings, steps)
    if trouble := cluster_trouble(settings):
        mistakes += 1
        print(f"cluster: {trouble}")
    return ERROR if mistakes else DONE


def _deep(folder: Path, settings: Settings) -> int:
    """Print how each check of the network ended; the number of those that failed."""
    from ml_assets.actions.check.deep import conformance

    try:
        checks = conformance(folder, settings)
    except TrainingFailed as error:
        print(f"  [FAIL] the network could not be tried: {error}")
        return 1
    if not checks:
        print("  its model is not a network, so there is nothing more to check")
    for one in checks:
        print(f"  [{_MARKS[one.outcome]}] {one.name}: {one.reason}")
    return sum(one.outcome == "failed" for one in checks)


def _steps(name: str, settings: Settings, steps: int) -> int:
    """Print how a few steps of its training ended; 1 where they did not end well."""
    from ml_assets.actions.check.deep import train_few_steps
    from ml_assets.store.pipeline_context import open_pipeline

    try:
        ended = train_few_steps(open_pipeline(name, settings), steps)
    except TrainingFailed as error:
        print(f"  [FAIL] steps: {error}")
        return 1
    print(f"  [{'pass' if ended.passed else 'FAIL'}] steps: {ended.reason}")
    return int(not ended.passed)
