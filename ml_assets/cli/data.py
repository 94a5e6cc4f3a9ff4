"""ml-assets data: states of the data by names that people can say: list, diff, tag, check out."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.session import prepared_settings

if TYPE_CHECKING:
    from ml_assets.actions.data import Difference, State, Table
    from ml_assets.store.snapshots import SnapshotStore

SCHEMA = 1
_NAMES = (
    "A NAME is main, main~2 (two states before), a tag, release-3 (or PIPELINE-release-3), a day"
    " such as 2026-11-17 (its end, UTC), or six characters of a commit."
)


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "data",
        help="states of the data by name: list, diff, tag, checkout",
        description=f"Every publish makes a state of all tables. {_NAMES}",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|diff|tag|checkout")
    listing = verbs.add_parser("list", help="what a state holds, and which states have names")
    listing.add_argument("key", nargs="?", metavar="KEY", help="pipeline, stage or asset key")
    listing.add_argument("--at", default="main", metavar="NAME", help="default: main")
    listing.add_argument("--last", type=int, default=5, metavar="N", help="states without a name")
    listing.set_defaults(call=_list)
    diff = verbs.add_parser("diff", help="which tables two states hold differently")
    diff.add_argument("before", metavar="NAME")
    diff.add_argument("after", nargs="?", default="main", metavar="NAME", help="default: main")
    diff.set_defaults(call=_diff)
    tag = verbs.add_parser("tag", help="give a state a name for good; it is never collected")
    tag.add_argument("name", metavar="TAG")
    tag.add_argument("--at", default="main", metavar="NAME", help="default: main")
    tag.set_defaults(call=_tag)
    checkout = verbs.add_parser("checkout", help="write the tables of a state into a folder")
    checkout.add_argument("name", metavar="NAME")
    checkout.add_argument("key", nargs="?", metavar="KEY", help="pipeline, stage or asset key")
    checkout.add_argument("--into", type=Path, required=True, metavar="FOLDER")
    checkout.set_defaults(call=_checkout)
    for verb in (listing, diff, tag, checkout):
        verb.add_argument("--json", action="store_true", help="as one JSON document")


def _list(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.data import find_state, states, tables

    store = _store()
    commit = find_state(store, arguments.at)
    found, named = tables(store, commit, arguments.key), states(store, arguments.last)
    if arguments.json:
        return _told({"commit": commit, "tables": found, "states": named})
    _print_tables(found, whole=arguments.key is not None)
    print("\nstates, the newest first:")
    for state in named:
        _print_state(state)
    return DONE


def _diff(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.data import differences, find_state

    store = _store()
    before, after = find_state(store, arguments.before), find_state(store, arguments.after)
    found = differences(store, before, after)
    if arguments.json:
        return _told({"before": before, "after": after, "differences": found})
    for each in found:
        print(f"{each.kind:8} {_named(each):60} {_rows(each)}")
    if not found:
        print(f"{arguments.before} and {arguments.after} hold the same")
    return DONE


def _tag(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.data import find_state, name_state

    store = _store()
    commit = find_state(store, arguments.at)
    name_state(store, arguments.name, commit)
    if arguments.json:
        return _told({"tag": arguments.name, "commit": commit})
    print(f"{arguments.name} is the state {commit[:12]}, for good")
    return DONE


def _checkout(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.data import check_out, find_state

    store = _store()
    commit, folder = find_state(store, arguments.name), arguments.into.expanduser().resolve()
    files = check_out(store, commit, arguments.name, folder, arguments.key)
    if arguments.json:
        return _told({"commit": commit, "folder": str(folder), "files": files})
    print(f"{files:,} files of {arguments.name} ({commit[:12]}) in {folder}")
    return DONE


def _store() -> "SnapshotStore":
    from ml_assets.store.open import open_snapshots

    return open_snapshots(prepared_settings().snapshots)


def _told(document: dict[str, Any]) -> int:
    def plain(value: Any) -> Any:
        return [asdict(each) for each in value] if isinstance(value, list) else value

    plainly = {name: plain(value) for name, value in document.items()}
    print(json.dumps({"schema": SCHEMA, **plainly}, indent=2, default=str))
    return DONE


def _print_tables(found: "list[Table]", *, whole: bool) -> None:
    from ml_assets.actions.data import by_key

    if not found:
        print("nothing is made yet of that")
    for key, parts in by_key(found).items():
        rows = sum(part.rows or 0 for part in parts)
        many = f"{len(parts):,} partitions" if parts[0].partition else ""
        print(f"{key:48} {many:>16} {f'{rows:,} rows' if rows else '':>18}".rstrip())
        for part in parts if whole and parts[0].partition else ():
            size = f"{part.rows or 0:,} rows"
            print(f"  {part.partition:46} {part.version[:12]:>16} {size:>18}")


def _print_state(state: "State") -> None:
    called = ", ".join(state.names) or state.commit[:12]
    print(f"  {state.time:%Y-%m-%d %H:%M}  {called:40} {state.message}")


def _named(each: "Difference") -> str:
    return f"{each.key} [{each.partition}]" if each.partition else each.key


def _rows(each: "Difference") -> str:
    match (each.rows_before, each.rows_after):
        case (None, None):
            return ""
        case (None, after):
            return f"{after:,} rows"
        case (before, None):
            return f"{before:,} rows before"
        case (before, after):
            return f"{before:,} -> {after:,} rows"
