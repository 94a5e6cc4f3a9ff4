"""Arguments and options that several commands share, each declared once."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from ml_assets.errors import did_you_mean

F = TypeVar("F", bound=Callable[..., object])


class Whole(click.IntRange):
    """A whole number from ``min`` on, and up to ``max`` where there is one."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            up_to = "up" if self.max is None else f"to {self.max}"
            self.fail(f"{str(value)!r} is not a number from {self.min} {up_to}", param, ctx)


class OneOf(click.Choice[str]):
    """A choice that says which of its words a mistyped one is like."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as wrong:
            self.fail(f"{wrong.message}{did_you_mean(str(value), self.choices)}", param, ctx)


COUNT = Whole(min=1)

FILE = click.Path(path_type=Path)
FORMATS = ("table", "csv", "jsonl", "parquet")


def _pipelines(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of pipelines that begin so, for the shell's completion."""
    from ml_assets.errors import MlAssetsError
    from ml_assets.settings import read_settings
    from ml_assets.spec.load import pipeline_folders

    try:
        known = pipeline_folders(read_settings())
    except MlAssetsError:  # a shell has no place for it: the command says it
        return []
    return [name for name in sorted(known) if name.startswith(incomplete)]


pipeline = click.argument("pipeline", shell_complete=_pipelines)
any_pipeline = click.argument("pipeline", required=False, shell_complete=_pipelines)
"""One pipeline, or all of them where none is named."""
verbose = click.option("--verbose", is_flag=True, help="Print a line for each partition and check.")
as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document, for a program."
)
open_page = click.option("--open", "open_page", is_flag=True, help="Open it in a browser.")
author = click.option(
    "--author", required=True, metavar="NAME", help="The person who is responsible."
)
reason = click.option("--reason", required=True, metavar="TEXT", help="The reason.")
partition = click.option(
    "--partition", metavar="KEY", help="Only this partition.  [default: all of them]"
)


def rows_out(default: str) -> Callable[[F], F]:
    """The options ``--format`` and ``--output`` of a command that hands out rows."""
    kind = click.option(
        "--format",
        "kind",
        type=click.Choice(FORMATS),
        help=f"The format of the rows.  [default: by the extension of --output, else {default}]",
    )
    target = click.option(
        "--output", "target", type=FILE, metavar="FILE", help="Write a .csv, .jsonl or .parquet."
    )
    return lambda command: kind(target(command))


def numbers(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[int, ...]:
    """Whole numbers above 0, separated by commas; none where the option is not given."""
    parts = value.split(",") if value is not None else []
    return tuple(COUNT(part.strip(), parameter, context) for part in parts)


def moment(_context: click.Context, _parameter: click.Parameter, value: str) -> datetime:
    """A time with its zone; a bare day begins at midnight, UTC."""
    try:
        found = datetime.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is not a time; write it as 2026-03-01T12:00Z"
        ) from error
    if found.tzinfo is None and len(value) == len("2026-03-01"):
        return found.replace(tzinfo=UTC)
    if found.tzinfo is None:
        raise click.BadParameter(
            f"{value!r} has no time zone: add Z for UTC, or an offset such as +01:00"
        )
    return found
