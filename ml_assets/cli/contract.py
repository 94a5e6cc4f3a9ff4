"""ml-assets contract: a first contract from what was read, and Great Expectations' pages of one."""

import argparse
import json
import sys
import webbrowser
from pathlib import Path

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.session import prepared_settings


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "contract", help="propose a table's first contract; make Data Docs of one"
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    propose = actions.add_parser(
        "propose",
        help="a first contract from what was read of a table; it passes on that",
        description="Profiles the raw snapshots of a source. What identifies a row and what is"
        " never missing is proposed as critical, ranges and sets as warnings.",
    )
    _add_table(propose)
    propose.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")
    propose.add_argument("--force", action="store_true", help="write over a file that is there")
    propose.set_defaults(call=call_propose)
    docs = actions.add_parser(
        "docs",
        help="Great Expectations' Data Docs of a contract and a partition that it was held to",
        description="Judges the newest partition (or the one that is named) once more, by Great"
        " Expectations' own engine: a minute for a million rows. The pages load their styles from"
        " the web.",
    )
    _add_table(docs, optional=True)
    docs.add_argument("--open", action="store_true", help="in the browser")
    docs.set_defaults(call=call_docs)


def call_propose(arguments: argparse.Namespace) -> int:
    settings = prepared_settings()
    from ml_assets.actions.contract import propose_contract, write_suite
    from ml_assets.spec.load import find_pipeline, load_spec, pipeline_folders
    from ml_assets.store.open import open_snapshots

    spec = load_spec(find_pipeline(pipeline_folders(settings), arguments.pipeline))
    store = open_snapshots(settings.snapshots)
    suite = propose_contract(store, spec, arguments.table, arguments.partition)
    if arguments.out is None:
        print(json.dumps(suite, indent=2, ensure_ascii=False))
        return DONE
    write_suite(suite, arguments.out, force=arguments.force)
    number = len(suite["expectations"])
    print(f"{number} expectations to {arguments.out}: read them, and edit", file=sys.stderr)
    return DONE


def call_docs(arguments: argparse.Namespace) -> int:
    settings = prepared_settings()
    from ml_assets.actions.contract import write_docs
    from ml_assets.spec.load import find_pipeline, load_spec, pipeline_folders
    from ml_assets.store.open import open_snapshots

    folder = find_pipeline(pipeline_folders(settings), arguments.pipeline)
    spec = load_spec(folder)
    store = open_snapshots(settings.snapshots)
    tables = [arguments.table] if arguments.table else [*spec.sources]
    for table in tables:
        page = write_docs(store, spec, folder, table, arguments.partition, settings)
        print(page)
        if arguments.open:
            webbrowser.open(page.absolute().as_uri())
    return DONE


def _add_table(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument("pipeline")
    parser.add_argument("table", nargs="?" if optional else None, help="a source of the pipeline")
    default = "the newest" if optional else "all of them"
    parser.add_argument("--partition", help=f"default: {default}")
