"""ml-assets compare: what differs between two runs, models or releases."""

import argparse
import json

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.history import aligned
from ml_assets.settings import read_settings


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "compare",
        help="what differs between two runs, models or releases",
        description="Spec, data, metrics and importance of A against B. Without A and B: the last"
        " release against the one before it.",
    )
    parser.add_argument("pipeline")
    names = "beginning of a run's or model's id, a stage, or latest"
    parser.add_argument("before", nargs="?", metavar="A", help=names)
    parser.add_argument("after", nargs="?", metavar="B", help=names)
    parser.add_argument("--json", action="store_true", help="for a program")
    parser.set_defaults(call=call, usage=parser.error)


def call(arguments: argparse.Namespace) -> int:
    if (arguments.before is None) != (arguments.after is None):
        arguments.usage("name both A and B, or neither")
    from ml_assets.actions.compare import compare, said
    from ml_assets.store.pipeline_context import open_pipeline

    pipeline = open_pipeline(arguments.pipeline, read_settings())
    found = compare(pipeline, arguments.before, arguments.after)
    if arguments.json:
        print(json.dumps(found.document(), indent=2))
        return DONE
    for name, side in (("A", found.before), ("B", found.after)):
        model = f"model {side.digest[:12]}" if side.digest else "no model"
        print(f"{name}: run {side.folder.run[:8]}, {side.folder.begun:%Y-%m-%d %H:%M} UTC, {model}")
        for what, text in said(side):
            print(f"   {what}: {text}")
    lines = [(c.group, c.name, c.before or "–", c.after or "–") for c in found.changes]
    for line in aligned([("part", "what", "A", "B"), *lines]) if lines else ["nothing differs"]:
        print(line)
    return DONE
