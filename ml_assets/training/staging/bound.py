"""``python -m ml_assets.training.staging.bound [COMMAND...]``: becomes the command, ends with us.

The pod's first process starts the program through it. A container's processes all end with its
first one; anywhere else the program would outlive it, and train on as an orphan.

Without a command it becomes torchrun once its arguments come, as a line on standard input. It loads
torchrun meanwhile: that takes seconds, in which the pod fetches its data and waits for the others.
"""

import json
import os
import sys

from ml_assets.training.recovery.orphans import die_with_parent


def torchrun_when_told() -> None:
    """Load torchrun, wait for ``{"arguments": [...], "variables": {...}}``, and run."""
    from torch.distributed.run import main

    line = sys.stdin.readline()
    if not line:
        return  # it is not needed
    told = json.loads(line)
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())  # for the ranks
    os.environ.update(told["variables"])
    main(told["arguments"])


if __name__ == "__main__":
    die_with_parent()
    if len(sys.argv) == 1:
        torchrun_when_told()
    else:
        os.execv(sys.argv[1], sys.argv[1:])  # the kernel keeps the promise across it
