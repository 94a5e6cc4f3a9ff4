"""ml-assets recall: take bad data back, with everything that it reached."""

import argparse
import json
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.session import prepared_settings

if TYPE_CHECKING:
    from ml_assets.extras.recall.recall import Extent, Way
    from ml_assets.settings import Settings
    from ml_assets.store.snapshots import SnapshotStore

SCHEMA = 1


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "recall",
        help="take bad data back: everything that it reached is kept and no longer used",
        description="Lists every table, feature set, training set, checkpoint, model and stage that"
        " a snapshot reached, in every pipeline; quarantines them, so that reading and loading"
        " refuse; and prints the cheapest way to make them again. Recorded and signed;"
        " --lift undoes it, recorded too.",
    )
    parser.add_argument(
        "snapshot",
        nargs="?",
        metavar="SNAPSHOT",
        help="a data version or a commit (six characters or more), or"
        " pipeline/stage/name/partition@version",
    )
    parser.add_argument("--lift", metavar="ID", help="let what this recall reached be used again")
    parser.add_argument("--author", metavar="NAME", help="who says so")
    parser.add_argument("--reason", metavar="TEXT", help="why")
    parser.add_argument(
        "--dry-run", action="store_true", help="list what it reached; write nothing"
    )
    parser.add_argument("--json", action="store_true", help="all of it as one JSON document")
    parser.set_defaults(call=call, refuse=parser.error)


def call(arguments: argparse.Namespace) -> int:
    if (arguments.snapshot is None) == (arguments.lift is None):
        arguments.refuse("name a SNAPSHOT to recall, or a recall to --lift")
    if not arguments.dry_run and not (arguments.author and arguments.reason):
        arguments.refuse("a recall is recorded: give --author and --reason (or --dry-run)")
    settings = prepared_settings()
    from ml_assets.extras.recall.recall import carry_out, extent
    from ml_assets.store.open import open_snapshots

    store = open_snapshots(settings.snapshots)
    if arguments.lift:
        return _lift(arguments, settings, store)
    said = {n: getattr(arguments, n) for n in ("author", "reason") if getattr(arguments, n)}
    found = extent(store, arguments.snapshot, **said)
    if not arguments.dry_run:
        kept = carry_out(store, found.recall)
        _observe(settings, found, f"recalled (recall {kept.id}): {kept.reason}")
    else:
        kept = found.recall
    if arguments.json:
        ways = [asdict(way) for way in found.ways]
        recall: dict[str, Any] = kept.model_dump(mode="json")
        document = {"schema": SCHEMA, "dry_run": arguments.dry_run, "recall": recall, "ways": ways}
        print(json.dumps(document, indent=2))
        return DONE
    _print(found, "" if arguments.dry_run else kept.id)
    return DONE


def _lift(arguments: argparse.Namespace, settings: "Settings", store: "SnapshotStore") -> int:
    from ml_assets.extras.recall.recall import extent, lift
    from ml_assets.records import recalls
    from ml_assets.store.snapshots import MAIN

    if arguments.dry_run:
        recall = recalls.find(store, store.resolve(MAIN), arguments.lift)
        print(f"would lift recall {recall.id} of {recall.snapshot} ({recall.reason})")
        return DONE
    recall = lift(store, arguments.lift, arguments.author, arguments.reason)
    found = extent(store, recall.seeds[0].version)
    _observe(settings, found, f"recall {recall.id} is lifted: {arguments.reason}")
    print(f"recall {recall.id} of {recall.snapshot} holds no more; the ledger says so")
    return DONE


def _observe(settings: "Settings", found: "Extent", text: str) -> None:
    import dagster as dg

    from ml_assets.extras.recall.recall import observe

    with dg.DagsterInstance.get() as instance:
        observe(instance, found, text)


def _print(found: "Extent", recall: str) -> None:
    versions = (*found.recall.seeds, *found.recall.reached)
    verb = "reached" if recall else "would reach"
    print(f"{found.recall.snapshot} {verb} {len(versions)} versions:")
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
        print(f"recall {recall} holds: they are kept, and no longer read or loaded")
    for way in found.ways:
        _print_way(way)


def _print_way(way: "Way") -> None:
    if way.again:
        print(f"\n{way.pipeline}: make again, in this order ({way.stays} others stay):")
    for key, group in groupby(way.again, key=lambda node: node[0]):
        partitions = [node[1] for node in group if node[1]]
        span = f" [{partitions[0]}]" if len(partitions) == 1 else ""
        if len(partitions) > 1:
            span = f" [{partitions[0]} .. {partitions[-1]}: {len(partitions)} partitions]"
        print(f"  {key}{span}")
    if way.command:
        print(f"mend the source first; then: {way.command}")
    if way.back_to:
        print(f"until then, back to the last sound release: ml-assets rollback {way.pipeline}")
        print(f"  --to {way.back_to[:12]}")
