"""ml-assets new: the folder of a new pipeline, which can be run at once."""

import argparse
import os
import shlex
from pathlib import Path

from ml_assets.cli.exit_codes import DONE, ERROR
from ml_assets.errors import SpecError
from ml_assets.settings import DEMO_PIPELINES, Settings, read_settings

_INTO = "where the folder is made (default: your first of ML_ASSETS_PIPELINES, else ./pipelines)"


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "new",
        help="make the folder of a new pipeline, which runs at once",
        description="Writes defs.yaml, features.py and a contract, and the table that they were"
        " written for: your own (--table), or 600 made-up orders. Everything in it can be changed.",
    )
    parser.add_argument("name", help="lower-case letters, digits and underscores")
    parser.add_argument("--table", type=Path, metavar="FILE", help="a .csv, .parquet or .jsonl")
    parser.add_argument("--label", metavar="COLUMN", help="what to predict (with --table)")
    parser.add_argument("--key", metavar="COLUMN[,COLUMN]", help="what tells the rows apart")
    parser.add_argument("--time", metavar="COLUMN", help="when each prediction is made")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help=_INTO)
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.check.check import check_folder
    from ml_assets.scaffold.folder import rows_file, write_pipeline
    from ml_assets.scaffold.labelled_table import describe, read_table, sample_table

    settings = read_settings(rooms_to_come=True)
    if arguments.table is None:
        if arguments.label or arguments.key or arguments.time:
            raise SpecError("--label, --key and --time describe a table: name it by --table FILE.")
        table = sample_table()
    else:
        if not arguments.label:
            raise SpecError(f"What is to be predicted from {arguments.table}? Add --label COLUMN.")
        key = arguments.key.split(",") if arguments.key else []
        table = describe(read_table(arguments.table), arguments.label, key, arguments.time)
    room = _room(settings, arguments.into)
    folder = write_pipeline(room, arguments.name, settings.sources, table)
    print(f"{folder}: {table.task} on {table.frame.height:,} rows")
    for column in table.columns:
        remark = f": {column.remark}" if column.remark else ""
        print(f"  {column.name:24} {column.dtype:9} {column.use}{remark}")
    rows = rows_file(settings.sources, folder.name)
    print(f"table: {'copied' if arguments.table else 'written'} to {rows}")
    print("  (the source of this pipeline: replace that file to bring in new rows)")
    for note in table.notes:
        print(f"note: {note}")
    mistakes = check_folder(folder)
    for mistake in mistakes:
        print(f"  {mistake}")
    if mistakes:
        return ERROR
    if folder.parent not in settings.pipelines:
        rooms = ["demo" if one == DEMO_PIPELINES else str(one) for one in settings.pipelines]
        known = os.pathsep.join([*rooms, str(folder.parent)])
        print(f"\nfirst: export ML_ASSETS_PIPELINES={shlex.quote(known)}")
    print(f"\nnext: ml-assets run {folder.name}")
    return DONE


def _room(settings: Settings, into: Path | None) -> Path:
    """Never the package's own folder: an upgrade would take the user's pipelines with it."""
    own = [room for room in settings.pipelines if room != DEMO_PIPELINES]
    if into is None and own:
        return own[0]
    return (into or Path("pipelines")).expanduser().resolve()
