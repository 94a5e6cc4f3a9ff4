"""What a run shows while it works: bars on a terminal, short lines elsewhere, all by --verbose.

Lines come as ``adapters/execute.py`` tells them. Warnings and what failed are always shown.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from ml_assets.errors import counted, visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_STEP = "> "
_PLANS = ("make  ", "skip  ")
_OF = re.compile(r"  (?:.*\((?=\d+ of \d+\)$)|(?:step|round) )(?P<done>\d+) of (?P<all>\d+)")
"""``  air/feature_set [2024-01]: 720 rows (3 of 18)``, ``  step 20 of 240, ...``."""
_PARTS = 4


class Screen(Protocol):
    """Shows a run."""

    def tell(self, line: str) -> None:
        """Show a line, or what it says of how far the work is."""
        ...


@contextmanager
def screen(*, verbose: bool) -> Iterator[Callable[[str], None]]:
    """What a run tells its lines to.

    Args:
        verbose: every line is shown as it is: one for each partition and check.
    """
    if verbose:
        yield _print
    elif sys.stdout.isatty():
        with _bars() as shown:
            yield shown.tell
    else:
        yield Lines().tell


class Lines:
    """Short lines: what is made and why, each step, every fourth of it, and what is not right."""

    def __init__(self) -> None:
        self._shown = 0

    def tell(self, line: str) -> None:
        """Print the line, unless it is one of many."""
        if line.startswith(_STEP):
            self._shown = 0
        elif line.startswith("  "):
            far = _OF.match(line)
            if far is None and not _is_trouble(line):
                return
            if far is not None and not _is_trouble(line):
                done, whole = (int(far[name]) for name in ("done", "all"))
                parts = _PARTS * done // max(1, whole)
                if parts <= self._shown and done < whole and self._shown:
                    return
                self._shown = max(1, parts)
        _print(line)


class Bars:
    """A bar for each step; plans are summed up at the end."""

    def __init__(self, progress: "Progress") -> None:
        self._progress = progress
        self._task: TaskID | None = None
        self._made: list[str] = []
        self._skipped: dict[str, list[str]] = {}

    def tell(self, line: str) -> None:
        """Move a bar, keep the line for the end, or print it above the bars."""
        if line.startswith(_STEP):
            self._begin(line.removeprefix(_STEP))
        elif line.startswith(_PLANS):
            self._keep(line)
        elif (far := _OF.match(line)) and not _is_trouble(line):
            self._move(far)
        elif not line.startswith("  ") or _is_trouble(line):
            self._progress.console.print(visible(line), markup=False, highlight=False)

    def end(self) -> None:
        """Fill the last bar."""
        if self._task is not None:
            total = self._progress.tasks[-1].total or 1
            self._progress.update(self._task, total=total, completed=total)
            self._task = None

    def table(self) -> list[tuple[str, str]]:
        """What was made and what was skipped, for people."""
        made = [("made", what) for what in self._made]
        skipped = [
            ("skipped", f"{counted(len(what), 'asset')}: {why}")
            for why, what in self._skipped.items()
        ]
        return [*made, *skipped]

    def _begin(self, step: str) -> None:
        self.end()
        self._task = self._progress.add_task(visible(step.replace("__", "/")), total=None)

    def _move(self, far: "re.Match[str]") -> None:
        if self._task is None:
            return
        done, whole = (int(far[name]) for name in ("done", "all"))
        self._progress.update(self._task, completed=done, total=whole)

    def _keep(self, line: str) -> None:
        verb, _, rest = line.partition("  ")
        what, _, why = rest.partition(": ")
        if "]" in rest:  # the partitions hold a colon themselves
            what, _, why = rest.rpartition("]: ")
            what += "]"
        if verb == "make":
            self._made.append(f"{what}  ({why})")
        else:
            self._skipped.setdefault(why, []).append(what)


@contextmanager
def _bars() -> Iterator[Bars]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Table

    console = Console(file=sys.__stdout__)  # ours escapes what steers a terminal
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        shown = Bars(progress)
        yield shown
        shown.end()
    rows = shown.table()
    if rows:
        table = Table.grid(padding=(0, 2))
        for row in rows:
            table.add_row(*(visible(cell) for cell in row))
        console.print(table, markup=False, highlight=False)


def _is_trouble(line: str) -> bool:
    return line.startswith(("  [fail]", "  [warn]", "  warning: ")) or "FAILED" in line


def _print(line: str) -> None:
    print(line, flush=True)
