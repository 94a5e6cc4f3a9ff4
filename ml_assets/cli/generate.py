"""ml-assets generate: flights of any size, and what may go wrong with them."""

import argparse
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ml_assets.cli.exit_codes import DONE
from ml_assets.errors import SourceError

_DESCRIPTION = """\
Lays out weeks of flights as the demo's outside world has them: a landing folder of schedules, the
arrivals, a weather database and the reference tables. They are drawn from the real year by seed and
week: the same options give the same bytes, whichever weeks are asked for and in whatever order.
Point ML_ASSETS_SOURCES at the folder to run a pipeline on them.

What goes wrong is said by options that may be repeated. Each may end in @MONDAY (from that week
on), @MONDAY..MONDAY (those weeks) or @..MONDAY (up to that week):

  --drift temp=0.3@2013-06-03        a number is moved by so many standard deviations
  --nulls wind_gust=0.5              a share of a column's values is missing
  --category dest=XYZ:0.05           a share of the flights has a value never seen before
  --concept 0.5@2013-06-03           a share of the outcomes is shuffled: nothing tells of them
  --label-delay 36                   outcomes become known so many hours later
  --volume 0.4@2013-06-03..2013-06-03   so many times as many flights
  --duplicates flights=0.01          a share of a table's rows is there twice
  --schema arrivals.gate=added       or removed, text, moved (to the end)
"""
_Values = dict[str, Any]
_OPTIONS: Mapping[str, tuple[str, Callable[[str, str], _Values]]] = {
    "drift": ("COLUMN=SIGMA", lambda what, much: {"column": what, "sigma": float(much)}),
    "nulls": ("COLUMN=SHARE", lambda what, much: {"column": what, "share": float(much)}),
    "category": ("COLUMN=VALUE:SHARE", lambda what, much: {"column": what, **_category(much)}),
    "concept": ("SHARE", lambda _, much: {"share": float(much)}),
    "label_delay": ("HOURS", lambda _, much: {"hours": float(much)}),
    "volume": ("FACTOR", lambda _, much: {"factor": float(much)}),
    "duplicates": ("TABLE=SHARE", lambda what, much: {"table": what, "share": float(much)}),
    "schema": ("TABLE.COLUMN=CHANGE", lambda what, much: {**_column(what), "change": much}),
}
"""Option -> how it is written, and the values of its knob by what stands before and after ``=``."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "generate",
        help="make flights of any size, with drift and faults on demand",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="an empty or new folder, or one to go on with")
    parser.add_argument("--weeks", type=int, default=51, help="how many (default 51)")
    parser.add_argument(
        "--start", type=date.fromisoformat, metavar="MONDAY", help="of the first (2012-12-31)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="flights of a week against the real one's"
    )
    for name, (metavar, _) in _OPTIONS.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            action="append",
            default=[],
            metavar=f"{metavar}[@MONDAY]",
        )
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.extras.demo.generator.lay_out import lay_out_generated, weeks_from
    from ml_assets.extras.demo.generator.recipe import Recipe
    from ml_assets.extras.demo.outside_world import FIRST_WEEK

    first = arguments.start or FIRST_WEEK
    if first.weekday() or arguments.weeks < 1:
        raise SourceError(
            f"{arguments.weeks} weeks from {first} cannot be generated: give at least one week, and"
            " name the first one by its Monday."
        )
    knobs = [_knob(name, text) for name in _OPTIONS for text in getattr(arguments, name)]
    values = {"seed": arguments.seed, "scale": arguments.scale, "knobs": knobs}
    try:
        recipe = Recipe.model_validate(values)
    except ValidationError as error:
        raise SourceError(f"Nothing was generated: {_first(error)}") from error
    weeks = weeks_from(first, arguments.weeks)
    for number, week in enumerate(lay_out_generated(arguments.folder, recipe, weeks), start=1):
        print(f"the week of {week} is there ({number} of {len(weeks)})", flush=True)
    return DONE


def _knob(option: str, text: str) -> _Values:
    """``WHAT=AMOUNT@SINCE..UNTIL``, of which an option has what it needs."""
    written, read = _OPTIONS[option]
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


def _first(error: ValidationError) -> str:
    found = error.errors()[0]
    return f"{' '.join(map(str, found['loc'][2:]))} {found['msg']}".strip()
