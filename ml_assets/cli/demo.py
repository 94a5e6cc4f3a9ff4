"""ml-assets demo: real flights from the outside world to a released model."""

import argparse
import os
import shutil
import sys
from pathlib import Path

from ml_assets.cli.exit_codes import DONE, ERROR
from ml_assets.cli.run import run_pipeline, tell
from ml_assets.cli.session import working_session
from ml_assets.errors import SettingsError
from ml_assets.settings import Settings, read_settings

PIPELINE = "flight_delays"
FAULTS = ("leak", "weak-model", "bad-rows", "tampered-model", "killed-rank")
_NEXT = """
what to do next{first}:
  ml-assets ui                            the lineage, in a browser
  ml-assets land-week                     the next week of flights: the UI's sensor takes it in
  ml-assets report flight_delays --open   the report, with pictures
  ml-assets status flight_delays --json   every version, and what it was made from
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "demo",
        help="lay out real flights and run the whole pipeline on them",
        description="Lays out 51 weeks of real flights, their arrivals and the weather as a user"
        " would have them, then runs the pipeline flight_delays. Offline; safe to repeat."
        " With --plant it plants a fault in a copy instead, and shows what catches it: exit code 0"
        " if the guard held, 1 if not. The demo's own release is not touched.",
    )
    parser.add_argument("--plant", choices=FAULTS, help="plant this fault, and see it caught")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    if arguments.plant:
        return _plant(arguments.plant)
    from ml_assets.actions.run.run import Request
    from ml_assets.extras.demo.outside_world import lay_out

    with working_session("demo", PIPELINE) as session:
        world = demo_world(session.settings)
        tell(f"the outside world: {world}")
        lay_out(world)
        run_pipeline(session, Request(PIPELINE))
    print(_NEXT.format(first=_first()))
    return DONE


def _plant(name: str) -> int:
    from ml_assets.extras.demo.faults.plants import plant, sentences
    from ml_assets.spec.load import find_pipeline, pipeline_folders

    settings = read_settings()
    original = find_pipeline(pipeline_folders(settings), PIPELINE)
    outcome = plant(name, settings, original, demo_world(settings), tell)
    print("", *sentences(outcome), sep="\n")
    return DONE if outcome.held else ERROR


def _first() -> str:
    """What makes the command known to the shell, where it is not."""
    if shutil.which("ml-assets"):
        return ""
    return f" (first: . {os.path.relpath(Path(sys.executable).parent / 'activate')})"


def demo_world(settings: Settings) -> Path:
    """Where the demo's outside world lies.

    Raises:
        SettingsError: pipelines read their sources from another place.
    """
    world = settings.home / "demo"
    if settings.sources != world:
        raise SettingsError(
            f"ML_ASSETS_SOURCES is {settings.sources}, but the demo reads the world it"
            f" lays out at {world}. Unset it for the demo, or run: ml-assets run {PIPELINE}"
        )
    return world
