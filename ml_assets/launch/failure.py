"""Classifies how an attempt ended, wherever it ran: what happens next, and a sentence for people.

The table has the program's own exit codes; what a cluster can do to it is in
``launch.kubernetes.pod_failures``.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ml_assets.errors import (
    MlAssetsError,
    TrainingFailed,
    TrainingHindered,
    TrainingInterrupted,
    quoted,
)
from ml_assets.spec.training_program.events import EndKind, Event, Failed
from ml_assets.spec.training_program.exit_codes import (
    EXIT_BAD_DATA,
    EXIT_BAD_REQUEST,
    EXIT_BUG,
    EXIT_NON_FINITE,
    EXIT_NOT_INSTALLED,
    EXIT_NOT_SAVED,
    EXIT_OUT_OF_MEMORY,
    EXIT_PEER_LOST,
    EXIT_PEER_SILENT,
    EXIT_RANKS_DIFFER,
    EXIT_SAVED_AFTER_NOTICE,
    EXIT_SUPERSEDED,
    EXIT_TEAM_CODE,
    codes_in,
    of_last_start,
    true_code,
)
from ml_assets.spec.usage import Held

Next = Literal["stop", "again", "lost", "unstarted", "no_room", "interrupted"]
"""``stop``: running again would only repeat it. ``again``: try within the error budget.
``lost``: a machine went, which is no error: go on at once. ``unstarted``: it ended before the
program ran. ``no_room``: not all nodes could be placed: fewer, if that is allowed. ``interrupted``:
it was asked to end, so nothing goes on by itself."""

KINDS: dict[Next, EndKind] = {
    "stop": "error",
    "again": "error",
    "interrupted": "error",
    "lost": "infrastructure",
    "unstarted": "start",
    "no_room": "start",
}
"""Whose budget an end is."""
_OF_THE_PLACE = {EXIT_NOT_SAVED, EXIT_NOT_INSTALLED, -signal.SIGBUS}
"""Where it ran is at fault, and not what it trains."""
_OF_THE_TRAINING = {"DeadlineExceeded", "CudaOutOfMemory", "ScratchFull"}
"""Causes that a cluster tells and another training may not have."""


@dataclass(frozen=True)
class Meaning:
    """A line of the table: what happened, what a person can do, and what is done next."""

    what: str
    remedy: str
    then: Next


@dataclass(frozen=True)
class Ending:
    """Describes how an attempt ended without a result."""

    cause: str
    """The kind of end in one word, for people who count them: ``exit 66``, ``SIGKILL``, or a key of
    ``pod_failures.CAUSES``."""
    then: Next
    what: str
    """What happened, in words that end a sentence."""
    remedy: str
    code: int = 0
    """The program's true exit code, or a negative signal; 0: it has none."""
    words: str = ""
    """What the program said, or Kubernetes; may be empty."""
    shown: tuple[str, ...] = ()
    """Lines for the end of a report: of a traceback, or of the log."""
    pod: str | None = None
    """On which it began, where that is known; so is its node."""
    node: str | None = None
    avoid: str | None = None
    """A node that the next attempt should not run on."""
    room: int | None = None
    """Nodes that there was room for, where not all could be placed."""
    of_program: bool = False
    """The program ended by itself: its events tell more than a cluster does (``judge``)."""
    held: Held | None = None
    """What the runner knows of its machines; None: this one, for as long as it was run."""

    @property
    def kind(self) -> EndKind:
        """Return whose budget it is."""
        return KINDS[self.then]

    @property
    def summary(self) -> str:
        """Return what happened, with what a cluster said of it, in one line."""
        return self.what if self.of_program or not self.words else f"{self.what}: {self.words}"

    def report(self, attempt: str) -> str:
        """The failure as an operator reads it: what happened, what was said, what to do.

        Args:
            attempt: its name for an operator.
        """
        where = ", ".join(filter(None, [self.pod, self.node and f"on {self.node}"]))
        lines = [f"{attempt} stopped: {self.what}{f' ({where})' if self.pod else ''}."]
        if self.words:
            lines.append(f"{_SAID}{self.words}")
        return "\n".join([*lines, f"  What to do: {self.remedy}", *self.shown])

    def error(self, attempt: str, log: Path) -> MlAssetsError:
        """The report as an error, and where the whole log is."""
        kind = TrainingFailed
        if self.then == "interrupted":
            kind = TrainingInterrupted
        elif self.code in _OF_THE_PLACE or self._of_the_cluster:
            kind = TrainingHindered
        return kind(f"{self.report(attempt)}{_LOG}{log}")

    @property
    def _of_the_cluster(self) -> bool:
        """Whether a cluster kept it from running, or took it away: any other would end so, too."""
        own = self.then == "again" or self.cause in _OF_THE_TRAINING
        return not (own or self.code or self.cause.startswith("exit "))


_LOG, _END, _SAID = "\n  Log: ", "  The end of its ", "  It said: "


def without_log(report: str) -> str:
    """The report of an error whose log will be deleted.

    Where it says nothing of what the program said, it has the log's end in place of its path.
    """
    said, _, log = report.partition(_LOG)
    if not log or _SAID in said or f"\n{_END}" in said:
        return said
    return "\n".join([said, f"{_END}log:", *_tail(_end_of(Path(log)))])


# In the order of exit_codes.PRECEDENCE. docs/operate.md shows it; tests hold the three together.
TABLE: dict[int, Meaning] = {
    EXIT_BAD_REQUEST: Meaning(
        "its request cannot be read, or is for another training program",
        "Change the model, training or cluster part of the spec, or run the program that it names."
        " Where fetched rows have no room: a larger cluster.data_cache, or more cluster.nodes and"
        " training.processes.",
        "stop",
    ),
    EXIT_BAD_DATA: Meaning(
        "the training set or model it was given cannot be used",
        "Materialize that asset again; a damaged folder can be deleted first.",
        "stop",
    ),
    EXIT_NON_FINITE: Meaning(
        "the training went non-finite",
        "Lower training.learning_rate or training.clip_norm, or look for broken feature values.",
        "stop",
    ),
    EXIT_TEAM_CODE: Meaning(
        "the network in the pipeline's folder does not do what it must",
        "Correct the network in the pipeline's folder, or what the spec gives it: model.config and"
        " model.batch.",
        "stop",
    ),
    EXIT_NOT_INSTALLED: Meaning(
        "a package that this family of models needs cannot be loaded",
        "Install what it names where the training runs, or choose another model.family.",
        "stop",
    ),
    EXIT_OUT_OF_MEMORY: Meaning(
        "memory ran out",
        "Lower training.batch_size and raise training.accumulate by as much (the update stays "
        "the same), set training.strategy to shard and raise training.processes, or give it more "
        "memory.",
        "stop",
    ),
    EXIT_RANKS_DIFFER: Meaning(
        "the processes did not use the same parameters in a step",
        "Let the model's forward pass take the same branches whatever its rows are.",
        "stop",
    ),
    EXIT_SUPERSEDED: Meaning(
        "a newer attempt of the session began: this one is an orphan and may write nothing more",
        "Nothing: the newer attempt continues the session.",
        "stop",
    ),
    EXIT_NOT_SAVED: Meaning(
        "a checkpoint that the model needs could not be saved, or none can be read, or rows cannot"
        " be fetched: the disk is full, or the store does not answer",
        "Free space there, or repair the store, and run again: it continues from the last whole "
        "checkpoint.",
        "stop",
    ),
    EXIT_SAVED_AFTER_NOTICE: Meaning(
        "it was told to stop, saved, and stopped",
        "Run again to continue from there.",
        "interrupted",
    ),
    # above SIGKILL: a process that hangs is ended by it
    EXIT_PEER_SILENT: Meaning(
        "a process no longer answered, and was ended",
        "Look at its machine: a stopped process, a dead disk or network. training"
        ".hang_timeout_seconds is how long the others wait for it.",
        "again",
    ),
    # a negative code is the signal that ended the process
    -signal.SIGKILL: Meaning(
        "it was killed (SIGKILL): probably out of memory, or somebody ended it",
        "Give it more memory, or lower training.batch_size or training.processes.",
        "again",
    ),
    -signal.SIGSEGV: Meaning(
        "it crashed in native code (SIGSEGV)", "Look at the log; check the torch build.", "again"
    ),
    -signal.SIGBUS: Meaning(
        "a memory-mapped file went away, or the disk or /dev/shm is full (SIGBUS)",
        "Free space where the objects and the temporary files are.",
        "again",
    ),
    -signal.SIGILL: Meaning(
        "it used an instruction that this processor lacks (SIGILL)",
        "Install a build of torch for this machine.",
        "stop",
    ),
    -signal.SIGFPE: Meaning("it crashed in arithmetic (SIGFPE)", "Look at the log.", "again"),
    -signal.SIGABRT: Meaning(
        "it aborted in native code (SIGABRT)", "Look at the log; memory may be short.", "again"
    ),
    EXIT_BUG: Meaning(
        "the program has a bug, or met an error that it does not know",
        "Look at the traceback; running again would most likely repeat it.",
        "stop",
    ),
    EXIT_PEER_LOST: Meaning(
        "a process lost the connection to another one, which did not say why it ended",
        "Look at the log.",
        "again",
    ),
    -signal.SIGTERM: Meaning(
        "it was told to stop (SIGTERM) before it could save",
        "Run again to continue from the last whole checkpoint.",
        "interrupted",
    ),
    -signal.SIGINT: Meaning(
        "it was interrupted (SIGINT) before it could save",
        "Run again to continue from the last whole checkpoint.",
        "interrupted",
    ),
}
_TAIL_LINES = 20
_TAIL_BYTES = 64 * 1024


def judge(exit_code: int, events: Sequence[Event], log: Path, *, workers: bool) -> Ending:
    """Return what the end of an attempt without a result means.

    Args:
        exit_code: of the process that was started; negative: a signal.
        events: of this attempt.
        workers: torchrun was started, and the program by it.
    """
    text = _end_of(log)
    failed = of_last_start([event for event in events if isinstance(event, Failed)])
    codes = [event.exit_code for event in failed]
    if workers:
        codes += codes_in(text)
    code = true_code(exit_code, codes)
    meaning = TABLE.get(code) or _unknown(code, workers=workers)
    said = next((event for event in failed if event.exit_code == code), None)
    return replace(
        of_program(code, meaning, _words(said)),
        shown=tuple(_shown(said, text)),
    )


def of_program(code: int, meaning: Meaning, words: str) -> Ending:
    """The program's own end, in the words of a line of the table."""
    return Ending(
        cause=cause_of(code),
        then=meaning.then,
        what=meaning.what,
        remedy=meaning.remedy,
        code=code,
        words=words,
        of_program=True,
    )


def stalled(noticed: str) -> Ending:
    """The end of an attempt that the launcher ended, for nothing moved in it any more."""
    return replace(of_program(EXIT_PEER_SILENT, TABLE[EXIT_PEER_SILENT], ""), what=noticed)


def cause_of(code: int) -> str:
    """An exit code in one word: the signal's name, or ``exit 70``."""
    if code >= 0:
        return f"exit {code}"
    known = {number.value: number.name for number in signal.Signals}
    return known.get(-code, f"signal {-code}")


def _unknown(code: int, *, workers: bool) -> Meaning:
    """A code of no table: a signal may pass, and so may torchrun's own trouble (a taken port)."""
    if code < 0:
        return Meaning(f"it was ended by signal {-code}", "Look at the log.", "again")
    if code == 0:
        return Meaning(
            "it ended as if all were well (exit code 0), but left no complete result",
            "Check that the disk is not full, and run again.",
            "stop",
        )
    what = f"it ended with exit code {code} before it could say why"
    return Meaning(what, "Look at the log.", "again" if workers else "stop")


def _words(said: Failed | None) -> str:
    """What the rank said that ended with the true code, and which one that was."""
    if said is None:
        return ""
    at = "" if said.step is None else f", step {said.step}"
    reason = quoted(said.reason) if said.exit_code == EXIT_BUG else said.reason
    return f"{reason} (rank {said.rank}{at})"


def _shown(said: Failed | None, text: str) -> list[str]:
    """The end of the rank's traceback; of the log, where no rank said anything."""
    if said is None:
        return [f"{_END}log:", *_tail(text)]
    return [f"{_END}traceback:", *_tail(said.detail)] if said.detail else []


def _tail(text: str) -> list[str]:
    lines = text.splitlines()[-_TAIL_LINES:] or ["(empty)"]
    return [f"    {line}" for line in quoted("\n".join(lines)).split("\n")]


def _end_of(log: Path) -> str:
    try:
        with log.open("rb") as handle:
            size = handle.seek(0, 2)
            handle.seek(max(0, size - _TAIL_BYTES))
            return handle.read().decode(errors="replace")
    except OSError:
        return ""
