"""ml-assets rollback: put a model back that was released before."""

import argparse
import json
import time

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.run import tell
from ml_assets.cli.session import prepared_settings


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "rollback",
        help="put a model back that was released before",
        description="Puts a model back in its stage that was there before. Its files are held to"
        " its digest and it predicts a few rows first; then one line of the ledger moves it. The"
        " model that it takes the place of comes back by another rollback only. Exit code 3: there"
        " is nothing to go back to, or somebody else was first.",
    )
    parser.add_argument("pipeline")
    parser.add_argument(
        "--to",
        metavar="VERSION",
        help="the model: its digest, or six characters of its beginning or more"
        " (default: the one that was there before)",
    )
    parser.add_argument("--author", required=True, metavar="NAME", help="who answers for it")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why")
    parser.add_argument("--json", action="store_true", help="the line of the ledger, as JSON")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    settings = prepared_settings()

    from ml_assets.actions.rollback import roll_back
    from ml_assets.assets.released_model.whole_rollback import Asked

    def quiet(_line: str) -> None:
        """A program reads the JSON alone."""

    asked = Asked(arguments.author, arguments.reason, arguments.to)
    said = quiet if arguments.json else tell
    returned = roll_back(arguments.pipeline, asked, settings, said)
    entry = returned.entry
    if arguments.json:
        print(json.dumps(entry.model_dump(mode="json"), indent=2))
        return DONE
    verb = "was in" if returned.was_there else "is back in"
    away = f" in place of {entry.replaced[:12]}" if entry.replaced else ""
    print(
        f"{arguments.pipeline}: model {entry.model[:12]} {verb} {entry.stage}{away}"
        f" (ledger line {entry.seq}), in {time.monotonic() - started:.1f} s"
    )
    return DONE
