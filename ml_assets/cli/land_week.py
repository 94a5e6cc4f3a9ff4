"""ml-assets land-week: the next week of the demo's outside world arrives."""

import argparse

from ml_assets.cli.demo import PIPELINE, demo_world
from ml_assets.cli.exit_codes import DONE
from ml_assets.settings import read_settings


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "land-week",
        help="let the next week of the demo's flights arrive",
        description="Drops the next week of flights, arrivals and weather where the demo reads"
        " them. While `ml-assets ui` runs, its sensor takes the week in and the model is made"
        " again; otherwise `ml-assets run flight_delays` does. Two weeks can land.",
    )
    parser.add_argument("--weeks", type=_count, default=1, help="how many weeks (default 1)")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.reload import reload_ui
    from ml_assets.extras.demo.outside_world import land

    settings = read_settings()
    for week in land(demo_world(settings), arguments.weeks):
        print(f"landed: the week of {week}")
    print(reload_ui(settings))
    print(f"`ml-assets ui` takes it in within a minute; by hand: ml-assets run {PIPELINE}")
    return DONE


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of weeks: 1 or more")
    return int(text)
