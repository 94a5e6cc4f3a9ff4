"""The reasons to stop before the program is done: exceptions with exit codes, and notices."""

import signal
import traceback

from ml_assets.spec.training_program.exit_codes import (
    EXIT_BAD_DATA,
    EXIT_BAD_REQUEST,
    EXIT_NON_FINITE,
    EXIT_NOT_INSTALLED,
    EXIT_NOT_SAVED,
    EXIT_PEER_LOST,
    EXIT_PEER_SILENT,
    EXIT_RANKS_DIFFER,
    EXIT_SAVED_AFTER_NOTICE,
    EXIT_SUPERSEDED,
    EXIT_TEAM_CODE,
)


class Stopped(Exception):
    """Ends the program with ``exit_code``; the message is for an operator."""

    exit_code: int

    def __init__(self, message: str, step: int | None = None) -> None:
        super().__init__(message)
        self.step = step


class BadRequest(Stopped):
    """The request cannot be met: it contradicts itself, its data or this program."""

    exit_code = EXIT_BAD_REQUEST


class TeamCodeFailed(Stopped):
    """A function of the pipeline's folder raised something, or returned what it may not."""

    exit_code = EXIT_TEAM_CODE


class BadData(Stopped):
    """The training set, the model or the weights are damaged, or hold nothing to learn."""

    exit_code = EXIT_BAD_DATA


class NonFinite(Stopped):
    """A loss or a gradient is no number: the step updated nothing, an evaluation saved nothing."""

    exit_code = EXIT_NON_FINITE


class RanksDiffer(Stopped):
    """Ranks do not compute the same thing: their sums would not belong together."""

    exit_code = EXIT_RANKS_DIFFER


class NotInstalled(Stopped):
    """A package that the model's family needs is missing, or a system library below it."""

    exit_code = EXIT_NOT_INSTALLED


class SavedAfterNotice(Stopped):
    """SIGTERM came, every rank saved the same step: running again goes on from there."""

    exit_code = EXIT_SAVED_AFTER_NOTICE


class NotSaved(Stopped):
    """A checkpoint or rows have no room, or cannot be read: a full disk, a store that is away."""

    exit_code = EXIT_NOT_SAVED
    passes: bool = False
    """The store may answer again: to save once more may do."""


def may_pass(error: BaseException | None) -> bool:
    """Return whether a save failed for a store that is away, and may come back."""
    return isinstance(error, NotSaved) and error.passes


class Superseded(Stopped):
    """A newer attempt has the session: this one is an orphan, and may write nothing more."""

    exit_code = EXIT_SUPERSEDED


class PeerLost(Stopped):
    """Another rank died: this one cannot go on alone."""

    exit_code = EXIT_PEER_LOST


class PeerSilent(Stopped):
    """Another rank did not answer within the timeout."""

    exit_code = EXIT_PEER_SILENT


# what gloo, the store and NCCL say: they have no types of their own for it
_SILENT = ("Timed out waiting", "timeout caused pair closure", "Watchdog caught collective")
_LOST = ("gloo/transport", "DistNetworkError", "DistStoreError", "DistBackendError")


def peer_trouble(error: BaseException) -> type[PeerLost] | type[PeerSilent] | None:
    """The kind of loss where an error, or one that it came from, says that a rank is gone."""
    text = "".join(traceback.format_exception(error))
    if any(words in text for words in _SILENT):
        return PeerSilent
    return PeerLost if any(words in text for words in _LOST) else None


class Notice:
    """SIGTERM raises a flag: training looks at it after each step, saves, and stops."""

    def __init__(self) -> None:
        self.given = False
        signal.signal(signal.SIGTERM, self._give)

    def _give(self, *_: object) -> None:
        self.given = True
