"""ml-assets new: create the folder of a pipeline, ready to run."""

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ml_assets.cli import options
from ml_assets.cli.output import DONE, ERROR
from ml_assets.errors import SpecError, counted
from ml_assets.settings import DEMO_PIPELINES, SHOWN_AFTER_DEMO, Settings, read_settings
from ml_assets.spec.automation import duration_text, parse_duration
from ml_assets.spec.base import check_timezone

if TYPE_CHECKING:
    from ml_assets.scaffold.find_input import Given
    from ml_assets.scaffold.labelled_table import LabelledTable
    from ml_assets.spec.sources import DateOrder, Dialect
    from ml_assets.spec.training import Task

DATE_ORDERS = ("dmy", "mdy")
FEW_ROWS = 10  # on average of a series: with fewer, its entity is hardly one
_MANY_ALIKE = 8
"""Columns in a row of which the same is said: more are one line."""


@click.command
@click.argument("name")
@click.option(
    "--from",
    "what",
    metavar="WHAT",
    help="A file (.csv, .parquet, .jsonl), a folder or a 'pattern*' of files, or"
    " sql:CONNECTION.table.",
)
@click.option("--label", metavar="COLUMN", help="What to predict (with --from).")
@click.option("--ahead", metavar="TIME", help="Predict the label's value this much later: 6h, 1d.")
@click.option("--key", metavar="COLUMN[,COLUMN]", help="The columns that identify a row.")
@click.option("--time", metavar="COLUMN", help="The column with the time of each prediction.")
@click.option(
    "--task",
    type=click.Choice(("binary", "multiclass", "regression")),
    help="The kind of label.  [default: derived from its values]",
)
@click.option(
    "--null",
    "nulls",
    multiple=True,
    metavar="TEXT",
    help='A text that means "no value" in CSV, such as nil; may be repeated.',
)
@click.option("--network", is_flag=True, help="Also write a network of your own, network.py.")
@click.option("--ci", is_flag=True, help="Also write a GitHub workflow that checks the pipeline.")
@click.option(
    "--timezone",
    "zone",
    default="UTC",
    show_default=True,
    metavar="ZONE",
    help="Zone of days, and of times written without one: Europe/Berlin.",
)
@click.option(
    "--dates",
    type=click.Choice(DATE_ORDERS),
    help="What comes first in dates such as 03/04/2023.  [default: derived from the values]",
)
@click.option(
    "--into",
    type=options.FILE,
    metavar="FOLDER",
    help="Where to create the folder.  [default: your first folder of "
    "ML_ASSETS_PIPELINES, else ./pipelines]",
)
def new(
    name: str,
    what: str | None,
    label: str | None,
    ahead: str | None,
    key: str | None,
    time: str | None,
    task: "Task | None",
    nulls: tuple[str, ...],
    zone: str,
    dates: "DateOrder | None",
    network: bool,
    ci: bool,
    into: Path | None,
) -> int:
    """Create the folder of a new pipeline, ready to run.

    Reads your data (--from) and finds its types, its key, its times, the texts that mean "no
    value", and the months or days in the names of files. Reports its assumptions and writes
    defs.yaml, features.py and a contract, all of which you can change. --network adds a network,
    and --ci a workflow beside the folder of pipelines. Without --from you get 600 made-up orders,
    with a label of --task. On a terminal it asks what it cannot decide. NAME has lower-case
    letters, digits and underscores.

    \b
      ml-assets new spoilage --from batches.csv --label spoiled
      ml-assets new air --from landing/air --label pm25 --ahead 6h
    """
    from ml_assets.actions.check.check import check_folder
    from ml_assets.scaffold.folder import new_folder, write_pipeline
    from ml_assets.scaffold.splits import with_enough_partitions

    settings = read_settings(rooms_to_come=True)
    if what is None and any((label, key, time, ahead, nulls)):
        raise SpecError(
            "--label, --ahead, --key, --time and --null describe a table: name it with --from."
        )
    check_zone(zone)
    room = _room(settings, into)
    new_folder(room, name, settings.pipelines)  # before the table is read, and anybody is asked
    asked = TableOptions(what, label, ahead, key, time, zone, dates, task, nulls)
    found = with_enough_partitions(asked.table(name, settings))
    folder = write_pipeline(room, name, settings.sources, found, zone, network=network)
    _print_table(folder, found)
    _print_source(folder, found, settings, zone)
    mistakes = check_folder(folder)
    for mistake in mistakes:
        print(f"  {mistake}")
    if mistakes:
        return ERROR
    if folder.parent not in settings.pipelines:
        print(f"\nfirst: export ML_ASSETS_PIPELINES={shlex.quote(_known(settings, folder))}")
    if ci:
        from ml_assets.scaffold.ci import write_ci

        print("", *write_ci(folder, settings.sources), sep="\n")
    made = sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())
    print(f"\nwritten: {', '.join(made)}; you can change all of it")
    print(f"next: ml-assets check {folder.name}, then ml-assets run {folder.name}")
    return DONE


@dataclass(frozen=True)
class TableOptions:
    """Holds what the command line says of a table; what it leaves out is found, or asked."""

    what: str | None
    label: str | None
    ahead: str | None
    key: str | None
    time: str | None
    zone: str
    dates: "DateOrder | None" = None
    task: "Task | None" = None
    nulls: tuple[str, ...] = ()

    def table(self, name: str, settings: Settings) -> "LabelledTable":
        """Find and describe the table.

        Raises:
            SpecError: it is not there, or something is to be said about it.
        """
        from ml_assets.scaffold.labelled_table import describe, sample_table

        what = self.what or (_ask("Your data (a file, a folder; empty: made-up orders)") or None)
        if what is None:
            return sample_table(self.task or "binary")
        given = self._given(what, name, settings)
        label = self.label or _ask("What should be predicted?", given.frame.columns)
        if not label:
            raise SpecError(f"What should be predicted from {what}? Add --label COLUMN.")
        ahead = self.ahead
        if self.label is None and ahead is None:
            ahead = _ask("How much later (6h, 1d; empty: the value in the row itself)") or None
        keys = [*dict.fromkeys(self.key.split(","))] if self.key else []
        try:
            return describe(given, label, keys, self.time, _duration(ahead), self.task)
        except SpecError as error:
            if keys or "--key" not in str(error) or not _is_asked():
                raise
            told = _ask(f"{error}\nThe key") or ""
            return describe(given, label, told.split(","), self.time, _duration(ahead), self.task)

    def _given(self, what: str, name: str, settings: Settings) -> "Given":
        from ml_assets.scaffold.find_input import find

        try:
            return find(what, name, settings, self.zone, self.dates, self.nulls)
        except SpecError as error:
            if self.dates or "--dates" not in str(error) or not _is_asked():
                raise
            order = "dmy" if _ask(f"{error}\nFirst", DATE_ORDERS) == "dmy" else "mdy"
            return find(what, name, settings, self.zone, order, self.nulls)


def _is_asked() -> bool:
    """Whether a person is there to answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _ask(question: str, known: Sequence[str] = ()) -> str | None:
    """The answer; None where nobody is there."""
    if not _is_asked():
        return None
    kind = click.Choice(list(known)) if known else None
    return str(click.prompt(question, type=kind, default=None if known else "", show_default=False))


def _duration(text: str | None) -> timedelta | None:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise SpecError(f"--ahead: {error}.") from error
    return found if isinstance(found, timedelta) else None


def check_zone(zone: str) -> None:
    """Hold the name of a time zone to those that there are.

    Raises:
        SpecError: it is none.
    """
    try:
        check_timezone(zone)
    except ValueError as error:
        raise SpecError(f"--timezone: {error}, such as Europe/Berlin.") from error


def _print_table(folder: Path, found: "LabelledTable") -> None:
    print(f"{folder}: {found.task} on {counted(found.frame.height, 'row')}")
    for _, alike in groupby(found.columns, lambda one: one.told):
        columns = list(alike)
        if len(columns) > _MANY_ALIKE:
            span = f"{columns[0].name} ... {columns[-1].name}"
            print(f"  {span:24} {columns[0].told} ({counted(len(columns), 'column')})")
            continue
        for column in columns:
            print(f"  {column.name:24} {column.told}")
    print(f"key: {', '.join(found.key)}")
    if found.ahead:
        print(f"label: {found.label} {duration_text(found.ahead)} after each row")
    if found.moments and found.moments.is_series and found.moments.step:
        print(f"step: {duration_text(found.moments.step)}, mostly")
    _print_series(found)


def _print_series(found: "LabelledTable") -> None:
    """How many series there are: too many say that the key is not what they are of."""
    entity = [name for name in found.key if found.moments and name != found.moments.time]
    if not (found.moments and found.moments.is_series and entity):
        return
    number = found.frame.select(entity).n_unique()
    rows = found.frame.height / number
    print(f"series: {number:,}, one for each {', '.join(entity)}, of {rows:,.0f} rows on average")
    if rows < FEW_ROWS:
        print("note: these series are short. If each is of something else, name it with --key")


def _print_source(folder: Path, found: "LabelledTable", settings: Settings, zone: str) -> None:
    from ml_assets.scaffold.folder import rows_file

    given = found.given
    if given.calendar:
        keys = given.calendar.keys
        print(f"partitions: {given.calendar.cadence}, {keys[0]} to {keys[-1]}, {len(keys)} of them")
    if given.rows:
        print(f"table: {given.rows} to {rows_file(settings.sources, folder.name)}")
        print("  (the source of this pipeline: replace that file to bring in new rows)")
    else:
        where = given.source.get("path") or f"{given.source['connection']}.{given.source['table']}"
        at = f", below {settings.sources}" if "path" in given.source else ""
        print(f"source: {where}{at}")
    if given.copies:
        print(
            f"  ({counted(len(given.copies), 'file')} copied there; to read them where they are,"
            " set ML_ASSETS_SOURCES to a folder above them)"
        )
    if said := _written(given.dialect):
        print(f"written: {said}")
    if len(given.null_values) > 1:
        told = ", ".join(repr(text) for text in given.null_values if text)
        print(f"no value: {told}")
    if given.zoneless:
        times = ", ".join(given.zoneless)
        are = "is" if len(given.zoneless) == 1 else "are"
        print(f"note: {times} {are} written without a zone: read as {zone} (--timezone)")
    for note in found.notes:
        print(f"note: {note}")


def _written(dialect: "Dialect") -> str:
    """What is not usual in how CSV files are written."""
    names = {";": "semicolons", "\t": "tabs", "|": "bars"}
    parts = {
        "separator": f"values separated by {names.get(dialect.separator, 'commas')}",
        "decimal": "decimal commas",
        "encoding": f"in {dialect.encoding.upper()}",
        "dates": f"days with the {'day' if dialect.dates == 'dmy' else 'month'} first",
    }
    return ", ".join(parts[name] for name in dialect.model_dump(exclude_defaults=True))


def _room(settings: Settings, into: Path | None) -> Path:
    """Never the package's own folder: an upgrade would take the user's pipelines with it."""
    own = [room for room in settings.pipelines if not room.is_relative_to(DEMO_PIPELINES)]
    if into is None and own:
        return own[0]
    return (into or Path("pipelines")).expanduser().resolve()


def _known(settings: Settings, folder: Path) -> str:
    """ML_ASSETS_PIPELINES with the room of a new folder behind what it names already."""
    shown = [one for one in settings.pipelines if one.parent != SHOWN_AFTER_DEMO]
    rooms = ["demo" if one == DEMO_PIPELINES else str(one) for one in shown]
    return os.pathsep.join([*rooms, str(folder.parent)])
