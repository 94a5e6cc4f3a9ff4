"""One child process group that never outlives its follower, whatever ends that."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

GRACE_SECONDS = 20.0
"""From SIGTERM to SIGKILL: time to save a checkpoint."""

_PR_SET_PDEATHSIG = 1
_PASSED_ON = {"PATH", "HOME", "LANG", "TMPDIR", "TZ", "VIRTUAL_ENV", "LD_LIBRARY_PATH"}
_PASSED_ON_PREFIXES = ("LC_", "PYTHON", "CUDA", "NCCL", "GLOO", "DYLD_")


def environment(threads: int, inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """What the program needs from ours, and no secret."""
    env = os.environ if inherited is None else inherited
    passed = {
        name: value
        for name, value in env.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    return {
        **passed,
        "OMP_NUM_THREADS": str(threads),
        # without it a restarted worker reads a dead one's address (pytorch issue 135712)
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


class ChildProcess:
    """The program (under torchrun or plain) in a process group of its own."""

    def __init__(self, command: Sequence[str], threads: int, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(threads),
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    def end(self) -> None:
        """Tell the group to save and stop, wait, then end what is left of it."""
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.sweep()

    def sweep(self) -> None:
        """No member of the group is left, also after its leader is gone."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
