"""ml-assets override: answer, by name, for a model that the gates refused."""

import argparse
import json

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.session import prepared_settings


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "override",
        help="answer, by name and reason, for a model that the gates refused",
        description="Writes a line into the ledger against the newest decision on a model, where"
        " that refused it; the next ml-assets run releases it. The line says who and why, shows in"
        " red wherever the release does, and counts for exactly that decision: another one makes it"
        " void. Exit code 3: there is no refusal to override.",
    )
    parser.add_argument("pipeline")
    parser.add_argument(
        "--model",
        metavar="DIGEST",
        help="the model: its digest, or six characters of its beginning or more"
        " (default: the one that was decided on last)",
    )
    parser.add_argument("--author", required=True, metavar="NAME", help="who answers for it")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why")
    parser.add_argument("--json", action="store_true", help="the line of the ledger, as JSON")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.override import override_refusal

    settings = prepared_settings()
    made = override_refusal(
        arguments.pipeline, arguments.model, arguments.author, arguments.reason, settings
    )
    if arguments.json:
        print(json.dumps(made.model_dump(mode="json"), indent=2))
        return DONE
    failed = ", ".join(made.gates) or "no gate was evaluated"
    print(
        f"{arguments.pipeline}: {made.author} overrides the decision in line {made.overrides} on"
        f" model {made.model[:12]} ({failed}), in line {made.seq}"
    )
    print(f"release it: ml-assets run {arguments.pipeline}")
    return DONE
