"""The groups `data contract` and `data quarantine`: contracts, and the rows that they keep back."""

import json
import sys
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ml_assets.cli import options
from ml_assets.cli.groups import CommandGroup
from ml_assets.cli.output import tell_page
from ml_assets.cli.session import prepared_settings, working_session
from ml_assets.errors import counted, one_line

if TYPE_CHECKING:
    from ml_assets.actions.quarantine import Kept

SCHEMA = 1
_REASONS = 3


@click.command
@options.pipeline
@click.argument("table")
@options.partition
@click.option(
    "--out",
    type=options.FILE,
    metavar="FILE",
    help="The file to write.  [default: standard output]",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def propose(
    pipeline: str, table: str, partition: str | None, out: Path | None, force: bool
) -> None:
    """Propose a first contract from the content of a table.

    Profiles the raw snapshots of TABLE, a source of the pipeline. If it was never read, it profiles
    the source's present data (the newest twelve partitions). The contract passes on that data.
    Unique keys, columns without missing values, means and labels are proposed as critical; ranges
    and sets as warnings. `ml-assets new` writes the same contract.
    """
    settings = prepared_settings()
    from ml_assets.actions.contract import propose_contract, write_suite
    from ml_assets.store.pipeline_context import declared_pipeline

    suite = propose_contract(declared_pipeline(pipeline, settings), table, partition)
    if out is None:
        print(json.dumps(suite, indent=2, ensure_ascii=False))
        return
    write_suite(suite, out, force=force)
    number = len(suite["expectations"])
    print(f"{counted(number, 'expectation')} written to {out}: read and edit them", file=sys.stderr)


@click.command
@options.pipeline
@click.argument("table", required=False)
@click.option("--partition", metavar="KEY", help="Only this partition.  [default: the newest]")
@options.open_page
def docs(pipeline: str, table: str | None, partition: str | None, open_page: bool) -> None:
    """Write Great Expectations' Data Docs of a contract.

    Audits the newest partition (or the one you name) once more with Great Expectations' own engine,
    which takes a minute for a million rows. Without TABLE it does so for every source. The pages
    load their styles from the web.
    """
    settings = prepared_settings()
    from ml_assets.actions.contract import write_docs
    from ml_assets.store.pipeline_context import declared_pipeline

    opened = declared_pipeline(pipeline, settings)
    for name in [table] if table else [*opened.spec.sources]:
        page = write_docs(opened, name, partition)
        tell_page(page, open_page=open_page)


contract = CommandGroup("contract", help="Propose a table's first contract, or write Data Docs.")
contract.subject("Commands", propose, docs)


@click.command
@options.pipeline
@click.argument("table", required=False)
@options.partition
@options.as_json
def show(pipeline: str, table: str | None, partition: str | None, as_json: bool) -> None:
    """Show the rows in quarantine, since when, and for which reasons.

    Without TABLE it shows every source of the pipeline.
    """
    settings = prepared_settings()
    from ml_assets.actions.contract import source_of
    from ml_assets.actions.quarantine import kept_rows
    from ml_assets.store.pipeline_context import declared_pipeline

    opened = declared_pipeline(pipeline, settings)
    if table:
        source_of(opened.spec, table)
    found = kept_rows(opened.store, opened.name, table, partition)
    if as_json:
        kept = [_kept_document(one) for one in found]
        document = {"schema": SCHEMA, "pipeline": opened.name, "kept": kept}
        print(json.dumps(document, indent=2, default=str))
        return
    if not found:
        print(f"no rows of {opened.name} are in quarantine")
    for name, group in groupby(found, key=lambda kept: kept.table):
        _print_table(opened.name, name, list(group))


@click.command
@options.pipeline
@click.argument("table")
@options.partition
@options.author
@options.reason
def release(pipeline: str, table: str, partition: str | None, author: str, reason: str) -> None:
    """Audit rows in quarantine again, and publish those that pass now.

    Use it after you fixed the contract: the rows are checked against the present one. Each
    partition becomes a new version; rows that still fail stay in quarantine. Author and reason are
    recorded with it.
    """
    with working_session("quarantine release", pipeline) as session:
        from ml_assets.actions.contract import source_of
        from ml_assets.actions.quarantine import present_answers, release_rows
        from ml_assets.store.pipeline_context import open_pipeline

        opened = open_pipeline(pipeline, session.settings)
        source_of(opened.spec, table)
        answers = present_answers(opened, table, partition)
        released = release_rows(
            opened,
            session.defs,
            session.instance,
            answers,
            author=author,
            reason=reason,
            tell=print,
        )
    stay = sum(answer.kept.rows - answer.passes for answer in answers)
    print(f"{counted(released, 'row')} released, {stay:,} stay in quarantine")
    print(f"what is made from them is due: ml-assets run {pipeline}")


quarantine = CommandGroup(
    "quarantine", help="Show rows in quarantine, or release those that pass now."
)
quarantine.subject("Commands", show, release)


def _print_table(pipeline: str, table: str, kept: "list[Kept]") -> None:
    rows = sum(one.rows for one in kept)
    print(
        f"{pipeline}/{table}: {counted(rows, 'row')} kept back in {counted(len(kept), 'partition')}"
    )
    widest = max(one.share for one in kept)
    for one in kept:
        name = one.partition or "all"
        told = ", ".join(f"{check} ({n:,})" for check, n in [*one.reasons.items()][:_REASONS])
        more = f" and {len(one.reasons) - _REASONS} more" if len(one.reasons) > _REASONS else ""
        bar = "#" * round(10 * one.share / widest) if widest else ""
        share = f"{one.rows:,} of {one.of:,}" if one.published else f"all {one.rows:,}, rejected"
        print(f"  {name:16} {share:>20} {bar:10} {told}{more}".rstrip())
        for release in one.released:
            print(
                f"  {'':16} {release.rows:,} released by {one_line(release.author)}"
                f" on {release.time:%Y-%m-%d}: {one_line(release.reason)}"
            )
    if any(one.published and one.rows for one in kept):
        print(f"  the rows: ml-assets data read {pipeline}/quarantine/{table} [--partition K]")
    if any(not one.published for one in kept):
        print(f"  the rows: ml-assets data read {pipeline}/rejected/{table} [--partition K]")


def _kept_document(kept: "Kept") -> dict[str, object]:
    released = [one.model_dump(mode="json") for one in kept.released]
    return {**asdict(kept), "share": kept.share, "released": released}
