"""ml-assets run: make every due asset of a pipeline, and show the progress.

It is shown as bars on a terminal, as short lines elsewhere, every line with --verbose.
``adapters/execute.py`` supplies the lines. Warnings and failures are always shown.
"""

import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ml_assets.cli import options
from ml_assets.cli.session import Session, prepared_settings, working_session
from ml_assets.cli.status import print_release
from ml_assets.errors import counted, visible
from ml_assets.spec.stages import DATA_STAGES, MODEL_STAGES

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from ml_assets.actions.run.run import Request

_THROUGH = [stage for stage in (*DATA_STAGES, *MODEL_STAGES) if stage != "checkpoints"]


@click.command
@options.pipeline
@click.option("--as-of", metavar="PARTITION", help="The last partition of the holdout.")
@click.option("--through", type=options.OneOf(_THROUGH), help="Stop after this stage.")
@click.option(
    "--fresh/--no-fresh",
    default=None,
    help="Train again from nothing. If interrupted, the next run continues it, and "
    "--no-fresh drops it.",
)
@click.option(
    "--epochs",
    type=int,
    metavar="N",
    help="Train for N epochs instead of the spec's. The next run without it trains again.",
)
@click.option(
    "--search",
    is_flag=True,
    help="First search for a better setting: the study of search.yaml, which runs only once.",
)
@click.option(
    "--experiment",
    metavar="TEXT",
    help="The experiment that the run belongs to, for `ml-assets models experiments`. It"
    " changes no result.",
)
@click.option("--hypothesis", metavar="TEXT", help="What you expect of the run, and why.")
@click.option("--goal", metavar="TEXT", help="The result that would be a success.")
@click.option("--dry-run", is_flag=True, help="Say what would be made, and why. Make no asset.")
@options.verbose
def run(
    pipeline: str,
    as_of: str | None,
    through: str | None,
    fresh: bool | None,
    epochs: int | None,
    search: bool,
    dry_run: bool,
    verbose: bool,
    **words: str | None,
) -> None:
    """Make every asset that is due, and say what was skipped.

    Compares every asset with its current inputs and code, makes each one that is out of date, and
    says what it skipped and why. Interrupted work continues where it stopped.

    \b
      ml-assets run flight_delays
      ml-assets run flight_delays --through feature_set
      ml-assets run flight_delays --search
      ml-assets run flight_delays --dry-run
    """
    if dry_run and search:
        raise click.UsageError(
            "--dry-run and --search do not go together: nobody knows what a search will find."
            " Leave --search out to see what is due before it."
        )
    from ml_assets.actions.run.run import Request
    from ml_assets.records.experiments import Words

    request = Request(
        pipeline,
        as_of=as_of,
        through=through,
        fresh=fresh,
        epochs=epochs,
        search=search,
        words=Words.of(words),
    )
    if dry_run:
        _print_due(request)
        return
    with working_session(f"run {pipeline}", pipeline) as session:
        run_pipeline(session, request, verbose=verbose)


def _print_due(request: "Request") -> None:
    from ml_assets.actions.run.due import due_now
    from ml_assets.adapters.runs import name_of, open_instance, runs_at_work
    from ml_assets.store.pipeline_context import open_pipeline

    pipeline = open_pipeline(request.pipeline, prepared_settings())
    with open_instance() as instance:
        others = [name_of(run) for run in runs_at_work(instance, pipeline.name)]
    for other in others:
        still = "what it has yet to make is listed, too"
        print(f"note  {other} is at work on {pipeline.name}: {still}")
    print("\n".join(due_now(pipeline, request) or ["nothing is due"]))


def run_pipeline(session: Session, request: "Request", *, verbose: bool = False) -> None:
    """Run a pipeline in an open session and print where its release stands, and where to look.

    Args:
        verbose: a line for each partition and check.
    """
    from ml_assets.actions.run.run import PipelineRun
    from ml_assets.store.pipeline_context import open_pipeline

    started = time.monotonic()
    pipeline = open_pipeline(request.pipeline, session.settings)
    with screen(verbose=verbose) as tell:
        PipelineRun(pipeline, session.defs, session.instance, tell).run(request)
    print(f"done in {time.monotonic() - started:.0f} s")
    print_release(pipeline)
    print("look: ml-assets ui")
    if not request.through:
        print(f"      ml-assets models report {pipeline.name} --open")
    if request.search:
        print(f"      ml-assets models search {pipeline.name} --open")


_STEP = "> "
_VERBS = {"make": "made", "skip": "skipped"}
_KEPT = "kept"
_PARTITIONS = re.compile(r" \[(?:.*: (?P<number>\d+) partitions|[^\]]*)\]$")
"""``feature_set [2024-01-01 .. 2024-03-01: 3 partitions]``, ``feature_set [2024-01-01]``."""
_OF = re.compile(r"  (?:.*\((?=\d+ of \d+\)$)|(?:step|round) )(?P<done>\d+) of (?P<all>\d+)")
"""``  air/feature_set [2024-01]: 720 rows (3 of 18)``, ``  step 20 of 240, ...``."""
_PARTS = 4
_QUIET_SECONDS = 60.0
_ALWAYS = (
    *("  [fail]", "  [warn]", "  warning: "),
    *("  the training set has ", "  training begins with ", "  resumed at ", "  trained on "),
    "  stopped early at ",
)


@contextmanager
def screen(*, verbose: bool) -> Iterator[Callable[[str], None]]:
    """What a run tells its lines to. Where the run ends well, a table says what was made.

    Args:
        verbose: every line is shown as it is: one for each partition and check.
    """
    summary = Summary()
    with _shown(verbose=verbose) as show:

        def tell(line: str) -> None:
            summary.keep(line)
            show(line)

        yield tell
    print()
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for verb, what in summary.rows():
        line = visible(f"{verb:7}  {what}")
        print(textwrap.fill(line, max(width, 40), subsequent_indent=" " * 9))


@contextmanager
def _shown(*, verbose: bool) -> Iterator[Callable[[str], None]]:
    if verbose:
        yield _print
    elif sys.stdout.isatty():
        with _bars() as shown:
            yield shown.tell
    else:
        yield Lines(_print).tell


class Summary:
    """Holds what a run made and what it skipped, a line for each reason to skip."""

    def __init__(self) -> None:
        self._verbs: dict[tuple[str, str], list[str]] = {}
        self._kept: list[tuple[str, str]] = []

    def keep(self, line: str) -> None:
        """Keep what is planned, ``make  air/feature_set [2024-01-01]: never made``, and what is
        kept back."""
        verb, _, rest = line.partition("  ")
        if verb == _KEPT:
            self._kept.append((verb, rest))
        if verb not in _VERBS:
            return
        what, _, why = rest.partition(": ")
        if "]: " in rest:  # the partitions hold a colon themselves
            what, _, why = rest.rpartition("]: ")
            what += "]"
        self._verbs.setdefault((verb, "" if verb == "make" else why), []).append(what)

    def rows(self) -> list[tuple[str, str]]:
        """``("made", "raw_snapshot (3 tables, 45 partitions), ...")``, then what was skipped, and
        which rows were kept back."""
        ordered = sorted(self._verbs.items(), key=lambda one: one[0][0])
        if ordered and ordered[0][0][0] == "skip":
            ordered = [(("make", ""), ["nothing: everything is up to date"]), *ordered]
        return [
            (_VERBS[verb], ", ".join(_by_stage(what)) + (f": {why}" if why else ""))
            for (verb, why), what in ordered
        ] + self._kept


def _by_stage(planned: list[str]) -> Iterator[str]:
    """The stages of what is planned, each once."""
    stages: dict[str, list[str]] = {}
    for what in planned:
        name = _PARTITIONS.sub("", what)
        stage = name.split("/")[1] if "/" in name else name
        stages.setdefault(stage, []).append(what)
    for stage, found in stages.items():
        tables = {_PARTITIONS.sub("", what) for what in found}
        sizes = [int(of["number"] or 1) for what in found if (of := _PARTITIONS.search(what))]
        said = [counted(len(tables), "table")] if len(tables) > 1 else []
        said += [counted(sum(sizes), "partition")] if sizes else []
        yield f"{stage} ({', '.join(said)})" if said else stage


class Lines:
    """Short lines: what is made and why, each step, every fourth of it, and what is not right.

    A step that takes long is heard of once a minute.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._shown = 0
        self._last = time.monotonic()

    def tell(self, line: str) -> None:
        """Print the line, unless it is one of many."""
        if line.startswith(_STEP):
            self._shown = 0
        elif line.startswith("  "):
            far = _OF.match(line)
            if far is None and not _is_told(line):
                return
            if far is not None and not _is_told(line):
                done, whole = (int(far[name]) for name in ("done", "all"))
                parts = _PARTS * done // max(1, whole)
                quiet = time.monotonic() - self._last < _QUIET_SECONDS
                if quiet and parts <= self._shown and done < whole and self._shown:
                    return
                self._shown = max(1, parts)
        self._last = time.monotonic()
        self._show(line)


class Bars:
    """A bar for each step; what is not right, and what came between the steps, above them."""

    def __init__(self, progress: "Progress") -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def tell(self, line: str) -> None:
        """Move a bar, or print the line above the bars."""
        if line.partition("  ")[0] in (*_VERBS, _KEPT):
            return  # the table at the end says what was made
        if line.startswith(_STEP):
            self._begin(line.removeprefix(_STEP))
        elif (far := _OF.match(line)) and not _is_told(line):
            self._move(far)
        elif not line.startswith("  ") or _is_told(line):
            self._progress.console.print(visible(line), markup=False, highlight=False)

    def end(self) -> None:
        """Fill the last bar."""
        if self._task is not None:
            total = self._progress.tasks[-1].total or 1
            self._progress.update(self._task, total=total, completed=total)
            self._task = None

    def _begin(self, step: str) -> None:
        self.end()
        self._task = self._progress.add_task(visible(step.replace("__", "/")), total=None)

    def _move(self, far: "re.Match[str]") -> None:
        if self._task is None:
            return
        done, whole = (int(far[name]) for name in ("done", "all"))
        self._progress.update(self._task, completed=done, total=whole)


@contextmanager
def _bars() -> Iterator[Bars]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

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


def _is_told(line: str) -> bool:
    """Whether a line is always shown: what is not right, what was re-used, what it began with."""
    return line.startswith(_ALWAYS) or "FAILED" in line


def _print(line: str) -> None:
    print(line, flush=True)
