"""ml-assets quarantine: the rows that are kept back, and letting go of those that pass now."""

import argparse
import json
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.session import prepared_settings, working_session

if TYPE_CHECKING:
    from ml_assets.actions.quarantine import Kept

SCHEMA = 1
_REASONS = 3


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "quarantine",
        help="show the rows that are kept back; release those that meet the present contract",
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    show = actions.add_parser("show", help="what is kept back, since when, for which reasons")
    show.add_argument("pipeline")
    show.add_argument("table", nargs="?", help="a source of the pipeline; default: all of them")
    show.add_argument("--partition", help="default: all of them")
    show.add_argument("--json", action="store_true", help="all of it as one JSON document")
    show.set_defaults(call=call_show)
    release = actions.add_parser(
        "release",
        help="audit kept rows again under the present contract, and publish those that pass",
        description="After a fix of the contract. Each partition becomes a new version; rows that"
        " still fail stay. Author and reason are written down with it.",
    )
    release.add_argument("pipeline")
    release.add_argument("table")
    release.add_argument("--partition", help="default: all that keep rows back")
    release.add_argument("--author", required=True, metavar="NAME", help="who says so")
    release.add_argument("--reason", required=True, metavar="TEXT", help="why")
    release.set_defaults(call=call_release)


def call_show(arguments: argparse.Namespace) -> int:
    settings = prepared_settings()
    from ml_assets.actions.contract import source_of
    from ml_assets.actions.quarantine import kept_rows
    from ml_assets.spec.load import find_pipeline, load_spec, pipeline_folders
    from ml_assets.store.open import open_snapshots

    spec = load_spec(find_pipeline(pipeline_folders(settings), arguments.pipeline))
    if arguments.table:
        source_of(spec, arguments.table)
    store = open_snapshots(settings.snapshots)
    found = kept_rows(store, spec.name, arguments.table, arguments.partition)
    if arguments.json:
        document = {"schema": SCHEMA, "pipeline": spec.name, "kept": [_plain(k) for k in found]}
        print(json.dumps(document, indent=2, default=str))
        return DONE
    if not found:
        print(f"no rows of {spec.name} are kept back")
    for table, group in groupby(found, key=lambda kept: kept.table):
        _print_table(spec.name, table, list(group))
    return DONE


def call_release(arguments: argparse.Namespace) -> int:
    with working_session("quarantine release", arguments.pipeline) as session:
        from ml_assets.actions.contract import source_of
        from ml_assets.actions.release_rows import present_answers, release_rows
        from ml_assets.actions.run.run import pipeline_graph
        from ml_assets.spec.load import pipeline_folders
        from ml_assets.store.open import open_snapshots

        graph = pipeline_graph(pipeline_folders(session.settings), arguments.pipeline)
        source_of(graph.spec, arguments.table)
        store = open_snapshots(session.settings.snapshots)
        answers = present_answers(graph, store, arguments.table, arguments.partition)
        released = release_rows(
            graph,
            session.defs,
            session.instance,
            answers,
            author=arguments.author,
            reason=arguments.reason,
            tell=print,
        )
    stay = sum(answer.kept.rows - answer.passes for answer in answers)
    print(f"{released:,} rows released, {stay:,} stay in quarantine")
    print(f"what is made from them is due: ml-assets run {arguments.pipeline}")
    return DONE


def _print_table(pipeline: str, table: str, kept: "list[Kept]") -> None:
    rows = sum(one.rows for one in kept)
    print(f"{pipeline}/{table}: {rows:,} rows kept back in {len(kept)} partitions")
    widest = max(one.share for one in kept)
    for one in kept:
        name = one.partition or "all"
        told = ", ".join(f"{check} ({n:,})" for check, n in [*one.reasons.items()][:_REASONS])
        more = f" and {len(one.reasons) - _REASONS} more" if len(one.reasons) > _REASONS else ""
        bar = "#" * round(10 * one.share / widest) if widest else ""
        place = f"{one.rows:,} of {one.of:,}" if one.published else f"all {one.rows:,}, rejected"
        print(f"  {name:16} {place:>20} {bar:10} {told}{more}".rstrip())
        for release in one.released:
            print(
                f"  {'':16} {release.rows:,} released by {release.author}"
                f" on {release.time:%Y-%m-%d}: {release.reason}"
            )
    if any(one.published and one.rows for one in kept):
        print(f"  the rows: ml-assets read {pipeline}/quarantine/{table} [--partition K]")
    if any(not one.published for one in kept):
        print(f"  the rows: ml-assets read {pipeline}/rejected/{table} [--partition K]")


def _plain(kept: "Kept") -> dict[str, object]:
    released = [one.model_dump(mode="json") for one in kept.released]
    return {**asdict(kept), "share": kept.share, "released": released}
