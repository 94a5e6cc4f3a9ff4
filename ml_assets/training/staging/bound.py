"""``python -m ml_assets.training.staging.bound COMMAND...``: becomes the command, ends with us.

The pod's first process starts torchrun through it. A container's processes all end with its first
one; anywhere else torchrun would outlive it, and train on as an orphan.
"""

import os
import sys

from ml_assets.training.recovery.orphans import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    os.execv(sys.argv[1], sys.argv[1:])  # the kernel keeps the promise across it
