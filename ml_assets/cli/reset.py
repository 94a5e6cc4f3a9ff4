"""ml-assets reset: delete the state folder."""

import argparse
import sys

from ml_assets.cli.exit_codes import DONE, ERROR
from ml_assets.settings import read_settings


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("reset", help="delete the state folder: a clean start")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.actions import home

    settings = read_settings()
    if not settings.home.exists():
        print(f"{settings.home} is not there: nothing to delete")
        return DONE
    if not arguments.yes and not _confirmed(str(settings.home)):
        print("nothing was deleted")
        return ERROR
    with home.lock(settings, "reset"):
        home.reset(settings)
    print(f"deleted {settings.home}")
    return DONE


def _confirmed(folder: str) -> bool:
    if not sys.stdin.isatty():
        print("pass --yes to delete without a question", file=sys.stderr)
        return False
    return input(f"Delete {folder} and every model in it? [y/N] ").strip().lower() == "y"
