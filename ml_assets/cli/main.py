"""ml-assets: the top of the command line, and errors as exit codes."""

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

import click

from ml_assets.cli import WORDS_OF_AN_INTERRUPT
from ml_assets.cli.groups import CommandGroup, Later, of_extra
from ml_assets.cli.output import DONE, ERROR, INTERRUPTED, REFUSED, USAGE
from ml_assets.errors import EvidenceError, Interrupted, MlAssetsError, visible

NAME = "ml-assets"
COMPLETE = "_ML_ASSETS_COMPLETE"
"""Set by a shell that asks how a line may go on; see ``ml-assets ops completion``."""
_EPILOG = """
\b
exit codes: 0 done, 1 error, 2 wrong usage, 3 refused by a gate, 130 interrupted
settings:   environment variables, listed by `ml-assets ops --help`
"""

commands = CommandGroup(
    NAME,
    help="Train, evaluate and release models as Dagster assets, with lineage.",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
click.version_option(package_name="ml_assets", message="%(prog)s %(version)s")(commands)
commands.subject(
    "Start",
    of_extra("demo", "Prepare a year of real flights and run the whole pipeline on them."),
    Later("new", "ml_assets.cli.new", "Create the folder of a new pipeline, ready to run."),
    Later("check", "ml_assets.cli.check", "Report every mistake in a pipeline's folder."),
)
commands.subject(
    "Work",
    Later("run", "ml_assets.cli.run", "Make every asset that is due, and say what was skipped."),
    Later(
        "status",
        "ml_assets.cli.status",
        "Show a pipeline's assets and its release.",
    ),
    Later("ui", "ml_assets.cli.ui", "Open Dagster in a browser, with MLflow and the reports."),
    Later("predict", "ml_assets.cli.predict", "Predict rows with the released model."),
    of_extra("serve", "Serve the released model over HTTP."),
)
commands.subject(
    "More",
    Later(
        "data",
        "ml_assets.cli.data",
        "Inspect tables: rows, states, contracts and quarantine.",
    ),
    Later("models", "ml_assets.cli.models", "Compare, judge, annotate and price runs and models."),
    Later("release", "ml_assets.cli.release", "Inspect, move, verify and export releases."),
    Later("ops", "ml_assets.cli.ops", "Operate: logs, alerts, servers, house-keeping, settings."),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what it prints is seen and does nothing else."""
    if instruction := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(commands, {}, NAME, COMPLETE, instruction)
    with redirect_stdout(_seen(sys.stdout)), redirect_stderr(_seen(sys.stderr)):
        return _run([*(sys.argv[1:] if arguments is None else arguments)])


_INTERRUPTS = {"KeyboardInterrupt", "DagsterExecutionInterruptedError"}
"""What a signal that asks for the end raises, by name: Dagster is not imported for it."""


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Ask for the end again where the first request was raised into nowhere.

    A signal's handler raises wherever the program is just then. In a finalizer, or in a callback of
    the garbage collection, Python prints what was raised and goes on.
    """
    print_it, is_due = sys.unraisablehook, False

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        nonlocal is_due
        if unraisable.exc_type.__name__ not in _INTERRUPTS:
            print_it(unraisable)
        elif not is_due:
            is_due = True
            _thread.start_new_thread(again, ())  # takes none of the locks of threading

    def again() -> None:
        nonlocal is_due
        time.sleep(0.01)  # by then the finalizer is left; if it is not, the hook is called again
        main_thread = threading.main_thread().ident
        if is_due and main_thread is not None:
            is_due = False
            signal.pthread_kill(main_thread, signal.SIGINT)

    sys.unraisablehook = hook
    try:
        yield
        if is_due:
            raise KeyboardInterrupt
    finally:
        is_due = False
        sys.unraisablehook = print_it


@contextmanager
def _told_to_end() -> Iterator[None]:
    """SIGTERM interrupts a command as Ctrl-C does; a handler of the caller's stays."""
    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _Seen:
    """A text stream to a terminal, through which no escape sequence of the data comes.

    Rows that are handed out go to the bytes below it, and stay as they are.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(visible(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _seen(stream: TextIO) -> TextIO:
    return cast("TextIO", _Seen(stream))


def _run(arguments: list[str]) -> int:
    try:
        with (
            _told_to_end(),
            interrupts_kept(),
            commands.make_context(NAME, arguments) as context,
        ):
            return commands.invoke(context) or DONE
    except click.exceptions.Exit as asked_for_help:
        return asked_for_help.exit_code
    except click.UsageError as wrong:
        return _tell_usage(wrong)
    except (KeyboardInterrupt, Interrupted):
        print(WORDS_OF_AN_INTERRUPT, file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return DONE
    except Exception as error:
        found = _ours(error)
        if found is None:
            raise
        print(f"error: {found}", file=sys.stderr)
        return REFUSED if isinstance(found, EvidenceError) else ERROR


def _tell_usage(wrong: click.UsageError) -> int:
    """Say what is wrong in one line; a group without a command shows its help."""
    if isinstance(wrong, click.exceptions.NoArgsIsHelpError):
        print(wrong.format_message(), file=sys.stderr)
        return USAGE
    said = " ".join(wrong.format_message().split())
    path = wrong.ctx.command_path if wrong.ctx else NAME
    end = "" if said.endswith((".", "?", "!")) else "."
    print(f"error: {said}{end} See: {path} --help", file=sys.stderr)
    return USAGE


def _ours(error: BaseException) -> MlAssetsError | None:
    """The report that an error is, or was caused by; None: a fault of the program, shown whole."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MlAssetsError):
            return cause
        cause = cause.__cause__
    from ml_assets.store.disk import refusal
    from ml_assets.store.lakefs.gateway import scan_away

    return refusal(error) or scan_away(error)


if __name__ == "__main__":
    sys.exit(main())
