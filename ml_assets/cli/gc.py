"""ml-assets gc: delete what nothing reaches any more, and say why the rest is kept."""

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.session import prepared_settings
from ml_assets.settings import Retention

if TYPE_CHECKING:
    from ml_assets.automation.housekeeping.collect import Outcome
    from ml_assets.automation.housekeeping.retention import Verdict

SCHEMA = 1
_BIG = 1_000_000
"""Bytes from which a kept thing is told of by name."""
_TOLD = 12


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "gc",
        help="delete what nothing reaches any more, and say why the rest is kept",
        description="Deletes what is old and reached by nothing. What a release, a line of a"
        " ledger, a tag or work going on reaches is never deleted. The time of each kind is set in"
        f' ML_ASSETS_RETENTION, e.g. "checkpoints=2d history=8w"; by default: {_defaults()}.',
    )
    parser.add_argument("--dry-run", action="store_true", help="delete nothing, only tell")
    parser.add_argument("--json", action="store_true", help="every thing and its verdict, as JSON")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.actions import home

    settings = prepared_settings()
    with home.lock(settings, "gc"):
        import dagster as dg

        from ml_assets.actions.run.execute import mark_dead_runs
        from ml_assets.automation.housekeeping.collect import Housekeeping

        with dg.DagsterInstance.get() as instance:
            mark_dead_runs(instance)
            outcome = Housekeeping(settings, instance).collect(dry_run=arguments.dry_run)
    if arguments.json:
        print(json.dumps(_document(outcome, arguments.dry_run), indent=2))
    else:
        _print(outcome, arguments.dry_run)
    return DONE


def _print(outcome: "Outcome", dry_run: bool) -> None:
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


def _biggest(outcome: "Outcome") -> "list[Verdict]":
    kept = [v for v in outcome.plan.verdicts if v.keep and v.thing.bytes >= _BIG]
    return sorted(kept, key=lambda verdict: -verdict.thing.bytes)[:_TOLD]


def _document(outcome: "Outcome", dry_run: bool) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "dry_run": dry_run,
        "freed_bytes": outcome.freed_bytes,
        "kinds": {kind: asdict(tally) for kind, tally in outcome.tallies.items()},
        "left": outcome.left,
        "things": [_row(verdict) for verdict in outcome.plan.verdicts],
    }


def _row(verdict: "Verdict") -> dict[str, Any]:
    thing = verdict.thing
    return {
        "kind": thing.kind,
        "name": thing.name,
        "bytes": thing.bytes,
        "used": thing.used.isoformat(),
        "keep": verdict.keep,
        "reason": verdict.reason,
    }


def _defaults() -> str:
    return ", ".join(f"{name} {time.days}d" for name, time in asdict(Retention()).items())


def _short(name: str) -> str:
    return f"{name[:12]}..." if len(name) == 64 else name


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
