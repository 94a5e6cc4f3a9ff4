"""Why the program stops before it is done: exceptions with their exit code, and the notice."""

import signal

from ml_assets.spec.program import (
    EXIT_BAD_DATA,
    EXIT_BAD_REQUEST,
    EXIT_NON_FINITE,
    EXIT_NOT_INSTALLED,
    EXIT_OUT_OF_MEMORY,
    EXIT_RANKS_DIFFER,
    EXIT_SAVED_AFTER_NOTICE,
)


class Stopped(Exception):
    """Ends the program with ``exit_code``; the message is for an operator."""

    exit_code: int

    def __init__(self, message: str, step: int | None = None) -> None:
        super().__init__(message)
        self.step = step


class BadRequest(Stopped):
    exit_code = EXIT_BAD_REQUEST


class BadData(Stopped):
    exit_code = EXIT_BAD_DATA


class NonFinite(Stopped):
    exit_code = EXIT_NON_FINITE


class OutOfMemory(Stopped):
    """Memory ran out, on the host or on a GPU."""

    exit_code = EXIT_OUT_OF_MEMORY


class RanksDiffer(Stopped):
    """Ranks do not compute the same thing: their sums would not belong together."""

    exit_code = EXIT_RANKS_DIFFER


class NotInstalled(Stopped):
    """A package that the model's family needs is missing, or a system library below it."""

    exit_code = EXIT_NOT_INSTALLED


class SavedAfterNotice(Stopped):
    """SIGTERM came, every rank saved the same step: running again goes on from there."""

    exit_code = EXIT_SAVED_AFTER_NOTICE


class Notice:
    """SIGTERM raises a flag: training looks at it after each step, saves, and stops."""

    def __init__(self) -> None:
        self.given = False
        signal.signal(signal.SIGTERM, self._give)

    def _give(self, *_: object) -> None:
        self.given = True
