"""House-keeping by hand: ml-assets ops gc, forget and reset."""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ml_assets.cli import options
from ml_assets.cli.output import DONE, ERROR
from ml_assets.cli.session import prepared_settings
from ml_assets.settings import Retention, read_settings

if TYPE_CHECKING:
    from ml_assets.automation.housekeeping.collect import CollectionResult
    from ml_assets.automation.housekeeping.retention import RetentionDecision

SCHEMA = 1
_BIG = 1_000_000
"""Bytes from which a kept thing is told of by name."""
_TOLD = 12
_DEFAULTS = ", ".join(f"{name} {time.days}d" for name, time in asdict(Retention()).items())


@click.command(
    help=f"""Delete what is old and no longer used.

    Deletes what is old and that nothing refers to, and says why the rest is kept. What a release,
    a line of a ledger, a tag or running work refers to is never deleted. The time of each kind is
    set in ML_ASSETS_RETENTION, e.g. "checkpoints=2d history=8w"; by default: {_DEFAULTS}.
    """
)
@click.option("--dry-run", is_flag=True, help="Delete nothing; only list what would be deleted.")
@options.as_json
def gc(dry_run: bool, as_json: bool) -> None:
    """Collect garbage, and print what was freed and what is kept."""
    from ml_assets.store import home

    settings = prepared_settings()
    with home.lock(settings, "gc"):
        from ml_assets.adapters.execute import mark_dead_runs
        from ml_assets.adapters.runs import open_instance
        from ml_assets.automation.housekeeping.collect import Housekeeping

        with open_instance() as instance:
            mark_dead_runs(instance)
            outcome = Housekeeping(settings, instance).collect(dry_run=dry_run)
    if as_json:
        print(json.dumps(_collected_document(outcome, dry_run), indent=2))
    else:
        _print_collected(outcome, dry_run)


def _print_collected(outcome: "CollectionResult", dry_run: bool) -> None:
    freed = "would free" if dry_run else "freed"
    print(f"{'':12}{'kept':>18}{freed:>22}")
    for kind, tally in outcome.tallies.items():
        kept = f"{tally.kept_things:,} = {_size(tally.kept_bytes)}"
        gone = f"{tally.freed_things:,} = {_size(tally.freed_bytes)}"
        print(f"{kind:12}{kept:>18}{gone:>22}")
    print(f"{'':12}{'':18}{_size(outcome.freed_bytes):>22}")
    for line in outcome.left:
        print(f"left {line}")
    big = _biggest(outcome)
    if big:
        print("\nkept, the biggest first:")
    for verdict in big:
        thing = verdict.thing
        print(f"  {_size(thing.bytes):>9}  {thing.kind} {_short(thing.name)}: {verdict.reason}")


def _biggest(outcome: "CollectionResult") -> "list[RetentionDecision]":
    kept = [v for v in outcome.plan.verdicts if v.keep and v.thing.bytes >= _BIG]
    return sorted(kept, key=lambda verdict: -verdict.thing.bytes)[:_TOLD]


def _collected_document(outcome: "CollectionResult", dry_run: bool) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "dry_run": dry_run,
        "freed_bytes": outcome.freed_bytes,
        "kinds": {kind: asdict(tally) for kind, tally in outcome.tallies.items()},
        "left": outcome.left,
        "things": [_row(verdict) for verdict in outcome.plan.verdicts],
    }


def _row(verdict: "RetentionDecision") -> dict[str, Any]:
    thing = verdict.thing
    return {
        "kind": thing.kind,
        "name": thing.name,
        "bytes": thing.bytes,
        "used": thing.used.isoformat(),
        "keep": verdict.keep,
        "reason": verdict.reason,
    }


def _short(name: str) -> str:
    return f"{name[:12]}..." if len(name) == 64 else name


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


@click.command
@options.pipeline
@click.option("--author", default="", metavar="NAME", help="The person who is responsible.")
@click.option("--reason", default="", metavar="TEXT", help="The reason.")
@click.option("--undo", is_flag=True, help="Bring the pipeline back.")
def forget(pipeline: str, author: str, reason: str, undo: bool) -> None:
    """Retire a pipeline and keep its history.

    Retires a pipeline in this state folder. It leaves the lineage, its sensors and schedules stop,
    and no run makes its assets. Its ledger, records and models stay and can be read and used.
    --undo brings it back.
    """
    from ml_assets.actions.reload import reload_ui
    from ml_assets.errors import SpecError, answered
    from ml_assets.spec.load import find_pipeline, pipeline_folders
    from ml_assets.store.home import lock
    from ml_assets.store.retired import bring_back, retire

    settings = prepared_settings()
    find_pipeline(pipeline_folders(settings), pipeline)
    if not undo and (nobody := answered("A retirement", author, reason)):
        raise SpecError(f"{nobody} Add --author NAME --reason TEXT.")
    with lock(settings, f"forget {pipeline}"):
        if not undo:
            retire(settings, pipeline, author, reason)
            print(f"{pipeline} is retired: nothing of it is made again, but it can still be shown")
            print(f"and used to predict. To bring it back: ml-assets ops forget {pipeline} --undo")
        elif bring_back(settings, pipeline):
            print(f"{pipeline} runs again: its sensors and schedules are on again")
        else:
            print(f"{pipeline} was not retired, so there is nothing to undo")
    print(reload_ui(settings))


@click.command
@click.option("--yes", is_flag=True, help="Delete without asking.")
def reset(yes: bool) -> int:
    """Delete the state folder: a clean start.

    Files in it that are not ours stay.
    """
    from ml_assets.store import home

    settings = read_settings()
    if not settings.home.exists():
        print(f"{settings.home} does not exist: nothing to delete")
        return DONE
    if not yes and not _confirmed(str(settings.home)):
        print("nothing was deleted")
        return ERROR
    with home.lock(settings, "reset"):
        left = home.reset(settings)
    print(f"deleted {settings.home}")
    for one in left:
        print(f"  left as it is: {one}")
    return DONE


def _confirmed(folder: str) -> bool:
    if not sys.stdin.isatty():
        print("pass --yes to delete without being asked", file=sys.stderr)
        return False
    return input(f"Delete {folder} and every model in it? [y/N] ").strip().lower() == "y"
