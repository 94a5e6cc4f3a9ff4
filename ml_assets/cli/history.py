"""ml-assets history: all that happened to a pipeline's models."""

import argparse
import json
import sys
from typing import TYPE_CHECKING

from ml_assets.cli.exit_codes import DONE, ERROR
from ml_assets.errors import counted
from ml_assets.settings import read_settings

if TYPE_CHECKING:
    from ml_assets.actions.history import Happened
    from ml_assets.store.pipeline_context import Pipeline


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "history",
        help="every decision, refusal, move, override and rollback of a pipeline's models",
        description="The ledger of a pipeline, newest first: what happened to which model, on which"
        " metric, why, and by whom.",
    )
    parser.add_argument("pipeline")
    parser.add_argument("--json", action="store_true", help="every line, nothing left out")
    parser.add_argument(
        "--check",
        action="store_true",
        help="whether the ledger tells a possible story: one champion at every moment, each by a"
        " decision or by somebody's word (exit code 1: it does not)",
    )
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.history import document, history
    from ml_assets.actions.repair import repair_projection
    from ml_assets.records.ledger.stages import stages
    from ml_assets.store.pipeline_context import open_pipeline

    settings = read_settings()
    pipeline = open_pipeline(arguments.pipeline, settings)
    if arguments.check:
        return _check(pipeline)
    repaired = repair_projection(pipeline.store, settings, pipeline.name)
    if repaired:
        print(repaired, file=sys.stderr)
    if arguments.json:
        print(json.dumps(document(pipeline), indent=2))
        return DONE
    lines = history(pipeline)
    if not lines:
        print(f"{pipeline.name}: nothing was decided yet; run: ml-assets run {pipeline.name}")
    table = aligned([_HEAD, *(_cells(one) for one in lines)]) if lines else []
    for line in table:
        print(line)
    for stage, model in stages([one.entry for one in reversed(lines)]).items():
        print(f"in {stage} now: {model[:12]}")
    return DONE


def _check(pipeline: "Pipeline") -> int:
    from ml_assets.records.ledger.audit import problems
    from ml_assets.records.ledger.chain import read

    entries = read(pipeline.store, pipeline.name)
    found = problems(entries)
    for problem in found:
        print(problem)
    if found:
        return ERROR
    print(f"{pipeline.name}: {counted(len(entries), 'line')}; one champion at every moment")
    return DONE


_HEAD = ("when (UTC)", "model", "what", "metric", "author", "why")


def _cells(one: "Happened") -> tuple[str, ...]:
    entry = one.entry
    when = f"{entry.time:%Y-%m-%d %H:%M}"
    return when, entry.model[:12], one.what, one.metric, entry.author, entry.reason


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns as wide as their widest cell; the last one is as long as it is."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)][:-1]
    return [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]
