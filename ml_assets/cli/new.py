"""A pipeline's folder: ml-assets new makes one, ml-assets check finds every mistake in it."""

import os
import shlex
from pathlib import Path

import click

from ml_assets.cli import options
from ml_assets.cli.exit_codes import DONE, ERROR
from ml_assets.errors import SpecError, TrainingFailed, counted
from ml_assets.settings import DEMO_PIPELINES, Settings, read_settings


@click.command
@click.argument("name")
@click.option("--table", type=options.FILE, metavar="FILE", help="A .csv, .parquet or .jsonl.")
@click.option("--label", metavar="COLUMN", help="What to predict (with --table).")
@click.option("--key", metavar="COLUMN[,COLUMN]", help="What tells the rows apart.")
@click.option("--time", metavar="COLUMN", help="When each prediction is made.")
@click.option("--network", is_flag=True, help="With a network of your own in network.py.")
@click.option(
    "--into",
    type=options.FILE,
    metavar="FOLDER",
    help="Where the folder is made.  [default: your first of ML_ASSETS_PIPELINES, else"
    " ./pipelines]",
)
def new(
    name: str,
    table: Path | None,
    label: str | None,
    key: str | None,
    time: str | None,
    network: bool,
    into: Path | None,
) -> int:
    """Make the folder of a new pipeline, which runs at once.

    Writes defs.yaml, features.py and a contract, and the table that they were written for: your own
    (--table), or 600 made-up orders; with --network also a network. Everything in it can be
    changed. NAME has lower-case letters, digits and underscores.

    \b
      ml-assets new spoilage --table batches.csv --label spoiled --key batch --time packed_at
    """
    from ml_assets.actions.check.check import check_folder
    from ml_assets.scaffold.folder import rows_file, write_pipeline
    from ml_assets.scaffold.labelled_table import describe, read_table, sample_table

    settings = read_settings(rooms_to_come=True)
    if table is None:
        if label or key or time:
            raise SpecError("--label, --key and --time describe a table: name it by --table FILE.")
        found = sample_table()
    else:
        if not label:
            raise SpecError(f"What is to be predicted from {table}? Add --label COLUMN.")
        found = describe(read_table(table), label, key.split(",") if key else [], time)
    folder = write_pipeline(_room(settings, into), name, settings.sources, found, network=network)
    print(f"{folder}: {found.task} on {found.frame.height:,} rows")
    for column in found.columns:
        remark = f": {column.remark}" if column.remark else ""
        print(f"  {column.name:24} {column.dtype:9} {column.use}{remark}")
    rows = rows_file(settings.sources, folder.name)
    print(f"table: {'copied' if table else 'written'} to {rows}")
    print("  (the source of this pipeline: replace that file to bring in new rows)")
    for note in found.notes:
        print(f"note: {note}")
    mistakes = check_folder(folder)
    for mistake in mistakes:
        print(f"  {mistake}")
    if mistakes:
        return ERROR
    if folder.parent not in settings.pipelines:
        print(f"\nfirst: export ML_ASSETS_PIPELINES={shlex.quote(_known(settings, folder))}")
    print(f"\nnext: ml-assets run {folder.name}")
    return DONE


def _room(settings: Settings, into: Path | None) -> Path:
    """Never the package's own folder: an upgrade would take the user's pipelines with it."""
    own = [room for room in settings.pipelines if room != DEMO_PIPELINES]
    if into is None and own:
        return own[0]
    return (into or Path("pipelines")).expanduser().resolve()


def _known(settings: Settings, folder: Path) -> str:
    """ML_ASSETS_PIPELINES with the room of a new folder behind what it names already."""
    rooms = ["demo" if one == DEMO_PIPELINES else str(one) for one in settings.pipelines]
    return os.pathsep.join([*rooms, str(folder.parent)])


@click.command
@options.any_pipeline
@click.option("--deep", is_flag=True, help="Hold its network to what training asks of one, too.")
def check(pipeline: str | None, deep: bool) -> int:
    """Report every mistake in a pipeline's folder.

    Without PIPELINE: in the folders of all of them. A mistake is told by file, line, key, value,
    rule and remedy; nothing is run. The cluster of the settings is asked whether it would let us
    train. With --deep the network is built and tried on made-up rows by two processes, in a
    minute: shapes, state, determinism, rows apart, shards, resumes. Exit code 1: there are
    mistakes.
    """
    from ml_assets.actions.check.check import all_mistakes, cluster_trouble, missing_here
    from ml_assets.spec.load import find_pipeline, pipeline_folders

    settings = read_settings()
    folders = pipeline_folders(settings)
    mistakes = 0
    for name in [pipeline] if pipeline else sorted(folders):
        folder = find_pipeline(folders, name)
        found = all_mistakes(folder, settings)
        mistakes += len(found)
        print(f"{name}: {counted(len(found), 'mistake') if found else 'good'}")
        for mistake in found:
            print(f"  {mistake}")
        for warning in missing_here(folder, settings):
            print(f"  warning: {warning}")
        if deep and not found:
            mistakes += _deep(folder, settings)
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
        print(f"  [FAIL] its network cannot be tried: {error}")
        return 1
    if not checks:
        print("  its model is no network: there is nothing more to ask")
    for one in checks:
        print(f"  [{_MARKS[one.outcome]}] {one.name}: {one.reason}")
    return sum(one.outcome == "failed" for one in checks)


_MARKS = {"passed": "pass", "warned": "warn", "failed": "FAIL"}
