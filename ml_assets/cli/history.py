"""ml-assets history: every decision, refusal and move of a pipeline's models."""

import argparse
import json
from typing import TYPE_CHECKING

from ml_assets.cli.exit_codes import DONE
from ml_assets.settings import read_settings

if TYPE_CHECKING:
    from ml_assets.operations.history import Happened


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "history",
        help="every decision, refusal and move of a pipeline's models",
        description="The ledger of a pipeline, newest first: what was decided about which model, on"
        " which metric, why, and by whom.",
    )
    parser.add_argument("pipeline")
    parser.add_argument("--json", action="store_true", help="every line, nothing left out")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.operations.history import document, history
    from ml_assets.operations.workplace import open_pipeline

    place = open_pipeline(arguments.pipeline, read_settings())
    if arguments.json:
        print(json.dumps(document(place), indent=2))
        return DONE
    lines = history(place)
    if not lines:
        print(f"{place.name}: nothing was decided yet; run: ml-assets run {place.name}")
    for line in aligned([_HEAD, *(_cells(one) for one in lines)] if lines else []):
        print(line)
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
