"""torchrun with forked ranks: torch and the program are loaded once on each node.

``python -m ml_assets.training.elastic [ARGUMENTS...]`` takes torchrun's arguments and is its own
agent, except for how a rank begins: as a fork of this process, not as a new interpreter that would
load everything for seconds, at the start and after each loss. On a GPU, whose driver allows no
fork, or if the system is not Linux, a rank is an interpreter of its own.

Without arguments, they come as a line on standard input, ``{"arguments": [], "variables": {}}``.
Everything is loaded meanwhile, while the pod fetches its data and waits for the others.
"""

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler
from torch.distributed.run import main as torchrun

from ml_assets.training.__main__ import run
from ml_assets.training.orphans import end_with_parent

PROGRAM = "ml_assets.training"
_LOADED = ("ml_assets.training.train", "torch._dynamo")
"""What a rank would load; DDP and checkpoints ask torch's compiler whether it is on."""
_LOADED_IN_PODS = ("boto3.s3.transfer", "ml_assets.store.s3.checkpoints")
_execute = SubprocessHandler._popen
_HANDLED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that torchrun handles and a new process does not; Python handles SIGINT in each."""


def main(arguments: Sequence[str]) -> None:
    """Load what a rank needs, and run."""
    if not arguments:
        end_with_parent()
    if sys.platform == "linux" and not torch.cuda.is_available():
        for module in _LOADED if arguments else (*_LOADED, *_LOADED_IN_PODS):
            import_module(module)
        SubprocessHandler._popen = fork_rank
        gc.freeze()  # what is loaded stays shared, and no collection of a rank walks over it
    if not arguments:
        line = sys.stdin.readline()
        if not line:
            return  # it is not needed
        told = json.loads(line)
        os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())  # for the ranks
        os.environ.update(told["variables"])
        arguments = told["arguments"]
    torchrun(arguments)


def fork_rank(
    self: SubprocessHandler, args: tuple[Any, ...], env: dict[str, str]
) -> "subprocess.Popen[Any]":
    """Begin a rank as a fork of this process, and another program as torchrun does."""
    if PROGRAM not in args:
        return _execute(self, args, env)
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)  # until the agent's handlers are gone
    try:
        return subprocess.Popen(
            args,
            env=env,
            stdout=self._stdout,
            stderr=self._stderr,
            restore_signals=False,  # a rank ignores those that Python ignores
            start_new_session=True,
            preexec_fn=partial(_become_rank, args, env),
        )
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)


def _become_rank(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Be the rank, and end as it: the command is never executed."""
    for number in _HANDLED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    last = max(int(file.name) for file in Path("/proc/self/fd").iterdir())
    os.closerange(3, last + 1)  # the agent's own; Popen waits until one of them is closed
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.update(environment)
    sys.argv = [PROGRAM, *command[command.index(PROGRAM) + 1 :]]
    gc.enable()
    run()


if __name__ == "__main__":
    main(sys.argv[1:])
