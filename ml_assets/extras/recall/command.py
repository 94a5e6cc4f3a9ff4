"""ml-assets data recall: recall bad data and everything made from it."""

import json
import sys
from dataclasses import asdict, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from ml_assets.cli import options
from ml_assets.cli.session import prepared_settings
from ml_assets.errors import SpecError, counted

if TYPE_CHECKING:
    from ml_assets.extras.recall.recall import Extent
    from ml_assets.extras.recall.recovery import RecoveryPlan
    from ml_assets.settings import Settings
    from ml_assets.spec.recalls import Recall
    from ml_assets.store.snapshots import SnapshotStore

SCHEMA = 1


@click.command
@click.argument("snapshot", required=False)
@click.option(
    "--lift",
    metavar="ID",
    help="Lift this recall, so that everything it reached may be used again.",
)
@click.option("--author", metavar="NAME", help="The person who is responsible.")
@click.option("--reason", metavar="TEXT", help="The reason.")
@click.option("--dry-run", is_flag=True, help="List what it reached, and write nothing.")
@options.as_json
def recall(
    snapshot: str | None,
    lift: str | None,
    author: str | None,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Recall bad data and everything made from it.

    Lists every table, feature set, training set, checkpoint, model and stage that a snapshot
    reached, in every pipeline; quarantines them, so that nothing can read or load them; and prints
    the cheapest way to make them again. The recall is recorded and signed. --lift undoes it, which
    is recorded too.

    SNAPSHOT is a data version or a commit (six characters or more), or
    pipeline/stage/name/partition@version.

    \b
      ml-assets data recall 5a1bec29 --dry-run
    """
    if (snapshot is None) == (lift is None):
        raise click.UsageError("Name a SNAPSHOT to recall, or a recall to --lift.")
    if not dry_run and not (author and reason):
        raise click.UsageError("A recall is recorded: give --author and --reason (or --dry-run).")
    settings = prepared_settings()
    from ml_assets.extras.recall.recall import carry_out, extent
    from ml_assets.store.open import open_snapshots

    store = open_snapshots(settings.snapshots)
    if snapshot is None:
        _lift(lift or "", store, settings, (author or "", reason or ""), dry_run=dry_run)
        return
    given = {"author": author, "reason": reason}
    found = extent(store, snapshot, **{name: said for name, said in given.items() if said})
    kept = found.recall
    if not dry_run:
        kept, found = carry_out(store, found)
        _observe(kept, found, f"recalled (recall {kept.id}): {kept.reason}")
        _show_in_mlflow(store, settings)
    found = replace(found, ways=tuple(_searched(way, settings) for way in found.ways))
    if as_json:
        ways = [asdict(way) for way in found.ways]
        recalled: dict[str, Any] = kept.model_dump(mode="json")
        document = {"schema": SCHEMA, "dry_run": dry_run, "recall": recalled, "ways": ways}
        print(json.dumps(document, indent=2))
        return
    _print_recall(found, "" if dry_run else kept.id)


def _lift(
    identity: str,
    store: "SnapshotStore",
    settings: "Settings",
    by: tuple[str, str],
    *,
    dry_run: bool,
) -> None:
    """End a recall; ``by`` are author and reason."""
    from ml_assets.extras.recall.recall import extent, lift
    from ml_assets.records import recall_files
    from ml_assets.store.snapshots import MAIN

    if dry_run:
        recall = recall_files.find(store, store.resolve(MAIN), identity)
        print(f"would lift recall {recall.id} of {recall.snapshot} ({recall.reason})")
        return
    author, reason = by
    recall = lift(store, identity, author, reason)
    found = extent(store, recall.seeds[0].version)
    _observe(recall, found, f"recall {recall.id} is lifted: {reason}")
    _show_in_mlflow(store, settings)
    print(f"recall {recall.id} of {recall.snapshot} is lifted, and the ledger says so")


def _searched(way: "RecoveryPlan", settings: "Settings") -> "RecoveryPlan":
    """Begin with a search where the winner of a reached one would be adopted."""
    from ml_assets.records.record_history import node_of
    from ml_assets.store.pipeline_context import open_pipeline

    try:
        winner = open_pipeline(way.pipeline, settings).winner
    except SpecError:  # it is no pipeline any more, or its spec is being written
        return way
    if winner is None or node_of(winner.record) not in way.again:
        return way
    return replace(way, command=f"{way.command} --search")


def _observe(recall: "Recall", found: "Extent", text: str) -> None:
    from ml_assets.adapters.runs import open_instance
    from ml_assets.extras.recall.recall import observe

    with open_instance() as instance:
        observe(instance, recall, found.ways, text)


def _show_in_mlflow(store: "SnapshotStore", settings: "Settings") -> None:
    """Take the aliases of recalled models off, or give them back, in each pipeline that a recall
    reached; what MLflow does not take is told, and the next command repairs it."""
    from ml_assets.records.ledger.chain import pipelines_with_ledger
    from ml_assets.records.tracking.projection import repair_projection

    for pipeline in pipelines_with_ledger(store, store.resolve()):
        if said := repair_projection(store, settings, pipeline):
            print(f"note: {said}", file=sys.stderr)


def _print_recall(found: "Extent", recall: str) -> None:
    versions = (*found.recall.seeds, *found.recall.reached)
    verb = "reached" if recall else "would reach"
    print(f"{found.recall.snapshot} {verb} {counted(len(versions), 'version')}:")
    for key, group in groupby(versions, key=lambda version: version.key):
        listed = list(group)
        shown = ", ".join(
            f"{v.partition} {v.version[:12]}" if v.partition else v.version[:12] for v in listed[:3]
        )
        more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
        print(f"  {key:44} {shown}{more}")
    for stage in found.recall.stages:
        print(f"  {stage.stage} of {stage.pipeline} is model {stage.model[:12]}")
    if recall:
        print(
            f"recall {recall} is in force: all of these are kept, and nothing reads or loads them"
        )
    for stage in found.judged_on:
        print(
            f"the canary of model {stage.model[:12]}, in {stage.stage} of {stage.pipeline}, was"
            " judged on these rows: it stays, and no sound rows speak for it"
        )
    for way in found.ways:
        _print_way(way)
    for pipeline in [way.pipeline for way in found.ways if way.stranded]:
        print(
            f"\n{pipeline}: no earlier model can be used, except a sound one that was rolled back"
        )
        print(f"from. To put it back: ml-assets release rollback {pipeline} --to MODEL. Otherwise")
        print("the champion gate has nothing to compare with, and fails: release the next model by")
        print(f"ml-assets release override {pipeline}")


def _print_way(way: "RecoveryPlan") -> None:
    if way.again:
        print(f"\n{way.pipeline}: make again, in this order ({way.stays} others stay):")
    for key, group in groupby(way.again, key=lambda node: node[0]):
        partitions = [node[1] for node in group if node[1]]
        span = f" [{partitions[0]}]" if len(partitions) == 1 else ""
        if len(partitions) > 1:
            span = (
                f" [{partitions[0]} .. {partitions[-1]}: {counted(len(partitions), 'partition')}]"
            )
        print(f"  {key}{span}")
    if way.command:
        print(f"repair the source first; then: {way.command}")
    if way.back_to:
        print("until then, back to the last sound release:")
        print(f"  ml-assets release rollback {way.pipeline} --to {way.back_to[:12]}")
