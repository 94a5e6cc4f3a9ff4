"""Why the program stops before it is done, as exceptions that carry their exit code."""

from ml_assets.spec.program import (
    EXIT_BAD_DATA,
    EXIT_BAD_REQUEST,
    EXIT_NON_FINITE,
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


class SavedAfterNotice(Stopped):
    """SIGTERM came, every rank saved the same step: running again goes on from there."""

    exit_code = EXIT_SAVED_AFTER_NOTICE
