"""The program's exit codes, and the true one among those of an attempt's processes."""

import re
import signal
from collections.abc import Iterable, Sequence

from ml_assets.spec.training_program.events import Failed

EXIT_DONE = 0
EXIT_BAD_REQUEST = 64
EXIT_BAD_DATA = 65
EXIT_NON_FINITE = 66
EXIT_TEAM_CODE = 67
EXIT_NOT_INSTALLED = 69
EXIT_BUG = 70
EXIT_PEER_LOST = 71
EXIT_RANKS_DIFFER = 72
EXIT_OUT_OF_MEMORY = 73
EXIT_NOT_SAVED = 74
EXIT_SAVED_AFTER_NOTICE = 75
EXIT_PEER_SILENT = 76
EXIT_SUPERSEDED = 77

VERDICTS = frozenset(
    {
        EXIT_BAD_REQUEST,
        EXIT_BAD_DATA,
        EXIT_NON_FINITE,
        EXIT_TEAM_CODE,
        EXIT_NOT_INSTALLED,
        EXIT_RANKS_DIFFER,
        EXIT_OUT_OF_MEMORY,
        EXIT_NOT_SAVED,
        EXIT_SAVED_AFTER_NOTICE,
        EXIT_SUPERSEDED,
    }
)
"""Ends that the program chose itself: to start its processes again would change nothing."""

PRECEDENCE = (
    EXIT_BAD_REQUEST,
    EXIT_BAD_DATA,
    EXIT_NON_FINITE,
    EXIT_TEAM_CODE,
    EXIT_NOT_INSTALLED,
    EXIT_OUT_OF_MEMORY,
    EXIT_RANKS_DIFFER,
    EXIT_SUPERSEDED,
    EXIT_NOT_SAVED,
    EXIT_SAVED_AFTER_NOTICE,
    EXIT_PEER_SILENT,  # above SIGKILL: a process that hangs is ended by it
    -signal.SIGKILL,
    -signal.SIGSEGV,
    -signal.SIGBUS,
    -signal.SIGILL,
    -signal.SIGFPE,
    -signal.SIGABRT,
    EXIT_BUG,
    EXIT_PEER_LOST,
    -signal.SIGTERM,
    -signal.SIGINT,
)
"""The order that counts where several ranks ended differently: the program's own verdict, then
the signal that took one rank, then what the others made of its loss."""

_TORCHRUN = re.compile(r"^\s*exitcode\s*: (-?\d+) \(pid: \d+\)", re.MULTILINE)
"""torchrun exits 1 for everything; the end of its log has each failed worker's true code."""


def of_last_start(failed: Sequence[Failed]) -> list[Failed]:
    """torchrun may have started the processes again: how they ended before was mended."""
    last = max((event.generation for event in failed), default=0)
    return [event for event in failed if event.generation == last]


def codes_in(log: str) -> list[int]:
    """The codes of its workers that torchrun printed."""
    return [int(code) for code in _TORCHRUN.findall(log)]


def true_code(exit_code: int, others: Iterable[int]) -> int:
    """The first by precedence of a process's own exit code and of those that others told."""
    told = {*others, exit_code}
    return next((code for code in PRECEDENCE if code in told), exit_code)
