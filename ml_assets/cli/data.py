"""ml-assets data: rows of tables, named states, quarantine and recalls."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ml_assets.cli import options
from ml_assets.cli.data_quality import contract, quarantine
from ml_assets.cli.groups import CommandGroup, of_extra
from ml_assets.cli.output import hand_out, row_format, tell_page
from ml_assets.cli.session import opened, prepared_settings
from ml_assets.errors import counted
from ml_assets.settings import read_settings

if TYPE_CHECKING:
    from ml_assets.actions.store_states import Difference, MadeTable, SnapshotState
    from ml_assets.assets.drift_report.findings import DriftReport
    from ml_assets.store.snapshots import SnapshotStore

SCHEMA = 1


@click.command
@click.argument("key")
@options.partition
@click.option(
    "--version",
    metavar="VERSION",
    help="A state (a tag, a day, main~2, six characters of a commit) or a data version.",
)
@click.option("--limit", type=options.COUNT, metavar="N", help="Only the first N rows.")
@options.rows_out(default="table")
def read(
    key: str,
    partition: str | None,
    version: str | None,
    limit: int | None,
    kind: str | None,
    target: Path | None,
) -> None:
    """Read any stored table, as it is or as it was.

    KEY is the key of the table's asset. For an unknown key, the command lists the known ones:

    \b
      PIPELINE/raw_snapshot/raw_SOURCE  a source as it was read
      PIPELINE/validated_table/SOURCE   the rows that meet the contract
      PIPELINE/quarantine/SOURCE        the rows that do not, each with its reason
      PIPELINE/rejected/SOURCE          tables that failed as a whole
      PIPELINE/derived_table/TABLE      a table of the team's own
      PIPELINE/feature_set              one row per decision
      PIPELINE/online_features          the newest feature row of each entity
      PIPELINE/training_set             the rows trained on, each with its split
    """
    from ml_assets.actions.read_table import read_table

    kind = row_format(kind, target, "table")
    rows = read_table(key, partition, version, read_settings())
    if limit is not None:
        rows = rows.head(limit)
    hand_out(rows.collect(), target, kind)


@click.command
@options.pipeline
@click.argument("table")
@options.partition
@options.open_page
def card(pipeline: str, table: str, partition: str | None, open_page: bool) -> None:
    """Write the data card of a table and say where it is.

    A card shows what a table holds: distributions, missing values, repeated rows, labels by group
    and period, and a few rows. TABLE is a source (the rows that meet its contract), a table of the
    team's own, feature_set or training_set.
    """
    from ml_assets.actions.card_page import write_card

    tell_page(write_card(opened(pipeline), table, partition), open_page=open_page)


@click.command
@options.pipeline
@options.as_json
def drift(pipeline: str, as_json: bool) -> None:
    """Show how far new data is from the release's training data.

    Prints the last drift report: what was judged, against what, and with which result. The report
    is made automatically when a period lands, and by `ml-assets run`.
    """
    from ml_assets.assets.drift_report.last_report import find_report
    from ml_assets.store.pipeline_context import open_pipeline

    found = find_report(open_pipeline(pipeline, prepared_settings()))
    if as_json:
        print(found.report.model_dump_json(indent=2))
        return
    _print_drift(found.report)
    if found.outdated:
        print(f"  note: {found.outdated}")


def _print_drift(report: "DriftReport") -> None:
    from ml_assets.assets.drift_report.verdict import TITLES, not_judged, summary

    first, last = report.trained_on
    judged = ", ".join(window.period for window in report.windows)
    print(f"{report.pipeline}: {summary(report)}")
    tested = counted(report.back_tested, "period") if report.back_tested else ""
    print(
        f"  {judged} against model {report.model[:12]}, trained on"
        f" {counted(report.training_rows, 'row')} of {first} to"
        f" {last}{f'; bounds back-tested on {tested}' if tested else ''}"
    )
    unjudged = not_judged(report)
    for outcome in report.outcomes:
        if outcome.reason not in unjudged:
            print(f"  [{outcome.word}] {TITLES[outcome.kind]}: {outcome.reason}")
    for reason, kinds in unjudged.items():
        print(f"  [not judged] {', '.join(TITLES[kind] for kind in kinds)}: {reason}")
    for note in report.notes:
        print(f"  note: {note}")


_at = click.option(
    "--at", default="main", metavar="STATE", show_default=True, help="The state of the data."
)


@click.command("list")
@click.argument("key", required=False)
@_at
@click.option(
    "--last",
    type=options.Whole(min=0),
    default=5,
    metavar="N",
    show_default=True,
    help="How many states without a name to list.",
)
@options.as_json
def list_(key: str | None, at: str, last: int, as_json: bool) -> None:
    """List the tables of a state, and the states that have names.

    KEY is a pipeline, a stage or the key of an asset.
    """
    from ml_assets.actions.store_states import find_state, states, tables

    store = _store()
    commit = find_state(store, at)
    found, named = tables(store, commit, key), states(store, last)
    if as_json:
        _print_json({"commit": commit, "tables": found, "states": named})
        return
    _print_tables(found, whole=key is not None)
    print("\nstates, the newest first:")
    for state in named:
        _print_state(state)


@click.command
@click.argument("before", metavar="STATE")
@click.argument("after", default="main", metavar="[STATE]")
@options.as_json
def diff(before: str, after: str, as_json: bool) -> None:
    """Show which tables differ between two states.

    The second state is main unless you name one.
    """
    from ml_assets.actions.store_states import differences, find_state

    store = _store()
    first, second = find_state(store, before), find_state(store, after)
    found = differences(store, first, second)
    if as_json:
        _print_json({"before": first, "after": second, "differences": found})
        return
    for each in found:
        print(f"{each.kind:8} {_named(each):60} {_rows(each)}")
    if not found:
        print(f"{before} and {after} hold the same")


@click.command
@click.argument("name", metavar="TAG")
@_at
@options.as_json
def tag(name: str, at: str, as_json: bool) -> None:
    """Give a state a permanent name; it is then never collected."""
    from ml_assets.actions.store_states import find_state, name_state

    store = _store()
    commit = find_state(store, at)
    name_state(store, name, commit)
    if as_json:
        _print_json({"tag": name, "commit": commit})
        return
    print(f"{name} is the state {commit[:12]}, for good")


@click.command
@click.argument("name", metavar="TAG")
def untag(name: str) -> None:
    """Remove the name of a state; no state is deleted.

    The name of a release cannot be removed. A planted name can: one whose commit no trusted key
    signed, or that the ledger does not mention. `release verify` and `ops gc` list such names.
    """
    from ml_assets.assets.released_model.tags import take_away

    print(f"{name} named the state {take_away(_store(), name)[:12]}; the name is gone")


@click.command
@click.argument("state")
@click.argument("key", required=False)
@click.option(
    "--into", type=options.FILE, required=True, metavar="FOLDER", help="The folder to write to."
)
@options.as_json
def checkout(state: str, key: str | None, into: Path, as_json: bool) -> None:
    """Write the tables of a state into a folder.

    KEY is a pipeline, a stage or the key of an asset; without it, all tables are written.
    """
    from ml_assets.actions.store_states import check_out, find_state

    store = _store()
    commit, folder = find_state(store, state), into.expanduser().resolve()
    files = check_out(store, commit, state, folder, key)
    if as_json:
        _print_json({"commit": commit, "folder": str(folder), "files": files})
        return
    print(f"{counted(files, 'file')} of {state} ({commit[:12]}) in {folder}")


def _store() -> "SnapshotStore":
    from ml_assets.store.open import open_snapshots

    return open_snapshots(prepared_settings().snapshots)


def _print_json(document: dict[str, Any]) -> None:
    def plain(value: Any) -> Any:
        return [asdict(each) for each in value] if isinstance(value, list) else value

    plainly = {name: plain(value) for name, value in document.items()}
    print(json.dumps({"schema": SCHEMA, **plainly}, indent=2, default=str))


def _print_tables(found: "list[MadeTable]", *, whole: bool) -> None:
    from ml_assets.actions.store_states import by_key

    if not found:
        print("there is no such table yet")
    for key, parts in by_key(found).items():
        rows = sum(part.rows or 0 for part in parts)
        many = counted(len(parts), "partition") if parts[0].partition else ""
        print(f"{key:48} {many:>16} {counted(rows, 'row') if rows else '':>18}".rstrip())
        for part in parts if whole and parts[0].partition else ():
            size = counted(part.rows or 0, "row")
            print(f"  {part.partition:46} {part.version[:12]:>16} {size:>18}")


def _print_state(state: "SnapshotState") -> None:
    called = ", ".join(state.names) or state.commit[:12]
    print(f"  {state.time:%Y-%m-%d %H:%M}  {called:40} {state.message}")


def _named(each: "Difference") -> str:
    return f"{each.key} [{each.partition}]" if each.partition else each.key


def _rows(each: "Difference") -> str:
    match (each.rows_before, each.rows_after):
        case (None, None):
            return ""
        case (None, after):
            return counted(after, "row")
        case (before, None):
            return f"{counted(before, 'row')} before"
        case (before, after):
            return f"{before:,} -> {counted(after, 'row')}"


data = CommandGroup(
    "data",
    help="""Inspect tables: rows, states, contracts and quarantine.

    Every publish makes a state of all tables. A STATE is main, main~2 (two states before), a tag,
    release-3 (or PIPELINE-release-3), a day such as 2026-11-17 (its end, UTC), or six characters of
    a commit.
    """,
)
data.subject(
    "Rows",
    read,
    card,
    of_extra("data lookup", "Look up the newest features of an entity."),
    drift,
)
data.subject("States of the data", list_, diff, tag, untag, checkout)
data.subject(
    "Rejected and recalled data",
    contract,
    quarantine,
    of_extra("data recall", "Recall bad data and everything made from it."),
)
data.subject(
    "Data of the demo",
    of_extra("data land-week", "Make the next week of the demo's flights arrive."),
    of_extra("data generate", "Make flights of any size, with drift and faults on demand."),
)
