"""Runs one attempt's processes behind a supervisor; they end with their follower."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from ml_assets.launch.local import supervisor
from ml_assets.spec.training_program.start import variables

GRACE_SECONDS = 20.0
"""From SIGTERM to SIGKILL: time to save a checkpoint."""
_SWEEP_SECONDS = 5.0

_PASSED_ON = {"PATH", "HOME", "LANG", "TMPDIR", "TZ", "VIRTUAL_ENV", "LD_LIBRARY_PATH"}
_PASSED_ON |= {"TORCH_CPP_LOG_LEVEL", "TORCH_DISTRIBUTED_DEBUG", "TORCH_LOGS"}
_PASSED_ON_PREFIXES = ("LC_", "PYTHON", "CUDA", "NCCL", "GLOO", "DYLD_")
S3_KEYS = "AWS_"
"""Passed on only where the checkpoints lie on S3: the program uploads them itself. Never logged."""
_TO_S3 = {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"}
_TO_S3 |= {"REQUESTS_CA_BUNDLE"}
"""The way to S3, in either case of letters; passed on like its keys."""


def environment(
    threads: int, inherited: Mapping[str, str] | None = None, *, s3: bool = False
) -> dict[str, str]:
    """Return what the program needs of our environment; no secret but, with ``s3``, S3's."""
    prefixes = (*_PASSED_ON_PREFIXES, S3_KEYS) if s3 else _PASSED_ON_PREFIXES
    env = os.environ if inherited is None else inherited
    passed = {
        name: value
        for name, value in env.items()
        if name in _PASSED_ON or name.startswith(prefixes) or (s3 and name.upper() in _TO_S3)
    }
    return {**passed, **supervisor.safe_path(), **variables(threads)}


class ChildProcess:
    """The program (under torchrun or plain) and its supervisor, in a process group of their own.

    No descriptor of ours is inherited, so that a session's lock is free when its holder is dead.
    """

    def __init__(
        self,
        command: Sequence[str],
        threads: int,
        log: Path,
        grace: float = GRACE_SECONDS,
        *,
        s3: bool = False,
    ) -> None:
        self._grace = grace
        # isolated and by path: needs no import of ours, and finds no module of its folder
        tied = [sys.executable, "-I", supervisor.__file__, str(os.getpid()), str(grace)]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*tied, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(threads, s3=s3),
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        """A child that is gone when the block is left, saved and stopped if by an exception."""
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def exit_code(self) -> int | None:
        """The exit code of the process; None while it runs; negative: the signal that ended it."""
        code = self._process.poll()
        if code is None:
            return None
        return supervisor.SIGNALLED - code if code > supervisor.SIGNALLED else code

    def end(self) -> None:
        """Tell the group to save and stop, wait, then end what is left of it."""
        if self._process.poll() is None:
            self._signal_group(signal.SIGTERM)
        try:
            self._process.wait(self._grace + _SWEEP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:  # also when a second interrupt cuts the waiting short
            self._sweep()

    def _sweep(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)  # the supervisor alone finds every worker
            try:
                self._process.wait(_SWEEP_SECONDS)
            except subprocess.TimeoutExpired:
                self._signal_group(signal.SIGKILL)
                self._process.wait()
        if (
            self._process.returncode or 0
        ) < 0:  # the supervisor itself was killed: it swept nothing
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS refuses a group of zombies
            return
