"""The demo: real flights to a released model, the next week of them, and flights of any size."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

import click

from ml_assets.cli import options
from ml_assets.cli.output import DONE, ERROR, tell
from ml_assets.cli.run import run_pipeline
from ml_assets.cli.session import working_session
from ml_assets.errors import SettingsError, SourceError
from ml_assets.settings import SHOWN_AFTER_DEMO, read_settings
from ml_assets.settings.environment import CODE_WORLD

PIPELINE, CODE, DIGITS = "flight_delays", "code_lm", "digits"
FAULTS = ("leak", "weak-model", "bad-rows", "tampered-model", "killed-rank")
_NEXT = """
what to do next{first}:
  ml-assets ui                                  the lineage, in a browser
  ml-assets data land-week                      the next week of flights: the UI takes it in
  ml-assets models report flight_delays --open  the report, with pictures
  ml-assets status flight_delays --json         every version, and what it was made from
"""

_CODE_NEXT = """
what to do next{first}:
  ml-assets models report code_lm --open  bits per byte, and how the model continues code
  ml-assets ui                            the lineage, in a browser
"""

_DIGITS_NEXT = """
what to do next{first}:
  ml-assets models report digits --open  which digits it mistakes for which
  ml-assets ui                           the lineage, in a browser
"""


@click.command
@click.argument("pipeline", type=click.Choice([PIPELINE, CODE, DIGITS]), default=PIPELINE)
@click.option(
    "--plant", type=click.Choice(FAULTS), help="Plant this fault, and see which guard catches it."
)
def demo(pipeline: str, plant: str | None) -> int:
    """Prepare a year of real flights and run the whole pipeline on them.

    Writes 51 weeks of real flights, their arrivals and the weather to a folder of sources, then
    runs the pipeline flight_delays. Works offline, and is safe to repeat.

    `demo code_lm` trains a language model on the Python sources of this interpreter instead, and
    `demo digits` a model of small images, each in a file of its own. From then on `ml-assets ui`
    also shows that pipeline.

    With --plant it plants a fault in a copy instead, and shows which guard catches it: exit code 0
    if the guard worked, 1 if not. The demo's own release is not touched.
    """
    if plant:
        return _plant(plant)
    if pipeline == CODE:
        return _code()
    if pipeline == DIGITS:
        return _digits()
    from ml_assets.actions.run.run import Request
    from ml_assets.extras.demo.outside_world import demo_world, lay_out

    with working_session("demo", PIPELINE) as session:
        world = demo_world(session.settings)
        tell(f"the outside world: {world}")
        lay_out(world)
        run_pipeline(session, Request(PIPELINE))
    print(_NEXT.format(first=_first()))
    return DONE


def _code() -> int:
    from ml_assets.actions.check.check import missing_here
    from ml_assets.extras.demo.shown_sources import lay_out_code

    if missing := missing_here(SHOWN_AFTER_DEMO / CODE_WORLD / CODE, read_settings()):
        raise SettingsError("\n".join(missing))
    return _smaller(CODE, lay_out_code, _CODE_NEXT)


def _digits() -> int:
    from ml_assets.extras.demo.shown_sources import lay_out_images

    return _smaller(DIGITS, lay_out_images, _DIGITS_NEXT)


def _smaller(pipeline: str, lay_out: Callable[[Path], Path], then: str) -> int:
    """Write what a pipeline reads below the demo's world, and run it."""
    from ml_assets.actions.run.run import Request
    from ml_assets.extras.demo.outside_world import demo_world

    tell(f"the outside world: {lay_out(demo_world(read_settings()))}")
    with working_session("demo", pipeline) as session:
        run_pipeline(session, Request(pipeline))
    print(then.format(first=_first()))
    return DONE


def _plant(name: str) -> int:
    from ml_assets.extras.demo.faults import plant, sentences
    from ml_assets.extras.demo.outside_world import demo_world
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


@click.command
@click.option(
    "--weeks", type=options.COUNT, default=1, show_default=True, help="The number of weeks."
)
def land_week(weeks: int) -> None:
    """Make the next week of the demo's flights arrive.

    Puts the next week of flights, arrivals and weather where the demo reads them. If `ml-assets ui`
    is running, its sensor ingests the week and a new model is trained; otherwise `ml-assets run
    flight_delays` does it. Two weeks can arrive.
    """
    from ml_assets.actions.reload import reload_ui
    from ml_assets.extras.demo.outside_world import demo_world, land

    settings = read_settings()
    for week in land(demo_world(settings), weeks):
        print(f"landed: the week of {week}")
    print(reload_ui(settings))
    print(f"`ml-assets ui` takes it in within a minute; by hand: ml-assets run {PIPELINE}")


_Values = dict[str, Any]
_Reader = Callable[[str, str], _Values]
_SPAN = "[@MONDAY]"
_KNOBS: Mapping[str, tuple[str, _Reader, str]] = {
    "drift": (
        "COLUMN=SIGMA",
        lambda what, much: {"column": what, "sigma": float(much)},
        "Move a number by this many standard deviations.",
    ),
    "nulls": (
        "COLUMN=SHARE",
        lambda what, much: {"column": what, "share": float(much)},
        "Remove a share of a column's values.",
    ),
    "category": (
        "COLUMN=VALUE:SHARE",
        lambda what, much: {"column": what, **_category(much)},
        "Give a share of the flights a value never seen before.",
    ),
    "concept": (
        "SHARE",
        lambda _, much: {"share": float(much)},
        "Shuffle a share of the outcomes, so that nothing predicts them.",
    ),
    "label_delay": (
        "HOURS",
        lambda _, much: {"hours": float(much)},
        "Make outcomes known this many hours later.",
    ),
    "volume": (
        "FACTOR",
        lambda _, much: {"factor": float(much)},
        "Multiply the number of flights by this factor.",
    ),
    "duplicates": (
        "TABLE=SHARE",
        lambda what, much: {"table": what, "share": float(much)},
        "Duplicate a share of a table's rows.",
    ),
    "schema": (
        "TABLE.COLUMN=CHANGE",
        lambda what, much: {**_column(what), "change": much},
        "Change a column: added, removed, text (its type), or moved (to the end).",
    ),
}
"""Option -> how it is written; the values of its knob by what stands before and after ``=``; what
it does."""


def _knob_options(command: options.F) -> options.F:
    for name, (written, _, about) in reversed([*_KNOBS.items()]):
        flag = f"--{name.replace('_', '-')}"
        command = click.option(flag, name, multiple=True, metavar=written + _SPAN, help=about)(
            command
        )
    return command


@click.command
@click.argument("folder", type=options.FILE)
@click.option("--weeks", type=int, default=51, show_default=True, help="The number of weeks.")
@click.option(
    "--start",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="MONDAY",
    help="The first week.  [default: 2012-12-31]",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="The seed of all random draws."
)
@click.option(
    "--scale",
    type=float,
    default=1.0,
    show_default=True,
    help="The size of a week, relative to the real one.",
)
@_knob_options
def generate(
    folder: Path,
    weeks: int,
    start: datetime | None,
    seed: int,
    scale: float,
    **knobs: tuple[str, ...],
) -> None:
    """Make flights of any size, with drift and faults on demand.

    Writes weeks of flights to FOLDER (new, empty, or begun by an earlier call) in the layout of the
    demo's sources: a landing folder of schedules, the arrivals, a weather database and the
    reference tables. They are drawn from the real year by seed and week, so the same options give
    the same bytes, whichever weeks you ask for and in whatever order. Point ML_ASSETS_SOURCES at
    the folder to run a pipeline on them.

    These options add drift and faults, and may be repeated. Each may end in @MONDAY (from that week
    on), @MONDAY..MONDAY (those weeks) or @..MONDAY (up to that week):

    \b
      --drift temp=0.3@2013-06-03
      --nulls wind_gust=0.5
      --category dest=XYZ:0.05
      --concept 0.5@2013-06-03
      --label-delay 36
      --volume 0.4@2013-06-03..2013-06-03
      --duplicates flights=0.01
      --schema arrivals.gate=added
    """
    from pydantic import ValidationError

    from ml_assets.extras.demo.generator.recipe import Recipe
    from ml_assets.extras.demo.generator.tables import lay_out_generated, weeks_from
    from ml_assets.extras.demo.outside_world import FIRST_WEEK

    first = start.date() if start else FIRST_WEEK
    if first.weekday() or weeks < 1:
        raise SourceError(
            f"{weeks} weeks from {first} cannot be generated: give at least one week, and name the"
            " first one by its Monday."
        )
    turned = [_knob(name, text) for name in _KNOBS for text in knobs[name]]
    try:
        recipe = Recipe.model_validate({"seed": seed, "scale": scale, "knobs": turned})
    except ValidationError as error:
        found = error.errors()[0]
        said = f"{' '.join(map(str, found['loc'][2:]))} {found['msg']}".strip()
        raise SourceError(f"Nothing was generated: {said}") from error
    asked = weeks_from(first, weeks)
    for number, week in enumerate(lay_out_generated(folder, recipe, asked), start=1):
        tell(f"the week of {week} is there ({number} of {len(asked)})")


def _knob(option: str, text: str) -> _Values:
    """``WHAT=AMOUNT@SINCE..UNTIL``, of which an option has what it needs."""
    written, read, _ = _KNOBS[option]
    said, _, span = text.partition("@")
    what, _, much = said.rpartition("=")
    since, _, until = span.partition("..")
    try:
        days = {k: date.fromisoformat(v) for k, v in (("since", since), ("until", until)) if v}
        return {"kind": option, **read(what, much), **days}
    except ValueError as error:
        raise SourceError(
            f"--{option.replace('_', '-')} {text} cannot be read ({error}); write"
            f" {written}[@MONDAY[..MONDAY]]"
        ) from error


def _category(text: str) -> _Values:
    value, _, share = text.rpartition(":")
    return {"value": value, "share": float(share)}


def _column(text: str) -> _Values:
    table, _, column = text.partition(".")
    return {"table": table, "column": column}
