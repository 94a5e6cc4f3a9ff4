"""From how the program ended to a sentence an operator can act on."""

import signal
from collections.abc import Sequence
from pathlib import Path

from ml_assets.errors import MlAssetsError, TrainingFailed, TrainingInterrupted
from ml_assets.spec.program import (
    EXIT_BAD_DATA,
    EXIT_BAD_REQUEST,
    EXIT_BUG,
    EXIT_NON_FINITE,
    EXIT_SAVED_AFTER_NOTICE,
    Event,
    Failed,
)

FINAL = {EXIT_BAD_REQUEST, EXIT_BAD_DATA, EXIT_NON_FINITE, EXIT_BUG}
"""Exit codes that running again would only repeat. Others are tried again within a budget."""

_MEANING: dict[int, str] = {
    # the program said why, in its own words; these say what kind of thing it is
    EXIT_BAD_REQUEST: "the request is wrong",
    EXIT_BAD_DATA: "the training set cannot be used",
    EXIT_NON_FINITE: "the training went non-finite",
    EXIT_BUG: "the program has a bug",
    EXIT_SAVED_AFTER_NOTICE: "it was told to stop, saved, and stopped; run again to go on",
    # a negative code is the signal that ended the process
    -signal.SIGKILL: "it was killed (SIGKILL): out of memory, or somebody ended it",
    -signal.SIGTERM: "it was told to stop (SIGTERM) before it could save",
    -signal.SIGSEGV: "it crashed in native code (SIGSEGV)",
    -signal.SIGABRT: "it aborted (SIGABRT): look at the log",
    -signal.SIGBUS: "a memory-mapped file went away or the disk is full (SIGBUS)",
}
_TAIL_LINES = 15


def true_code(exit_code: int, events: Sequence[Event]) -> int:
    """torchrun exits 1 for everything: the first rank that failed by itself has the real code."""
    failed = [event for event in events if isinstance(event, Failed)]
    causes = [event.exit_code for event in failed if event.exit_code != EXIT_BUG]
    if causes:
        return causes[0]
    return failed[0].exit_code if failed and exit_code > 0 else exit_code


def failure(exit_code: int, events: Sequence[Event], log: Path) -> MlAssetsError:
    """The error for an attempt that ended without a result."""
    code = true_code(exit_code, events)
    said = [event for event in events if isinstance(event, Failed) and event.exit_code == code]
    reason = f"{said[0].reason} (rank {said[0].rank})" if said else ""
    meaning = _MEANING.get(code, f"it ended with exit code {code}")
    sentence = f"The training program stopped: {meaning}."
    if reason:
        sentence += f"\n  It said: {reason}"
    if code == EXIT_SAVED_AFTER_NOTICE:
        return TrainingInterrupted(sentence)
    if not reason:
        sentence += f"\n  The end of its log:\n{_tail(log)}"
    return TrainingFailed(f"{sentence}\n  Log: {log}")


def _tail(log: Path) -> str:
    if not log.is_file():
        return "    (no log)"
    lines = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    return "\n".join(f"    {line}" for line in lines) or "    (empty)"
