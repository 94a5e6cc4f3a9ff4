"""Two ranks that meet; the first start loses one, and in the second rank 0 comes seconds late.

Where the second start reads the store of the first, rank 1 finds the address of the dead rank 0.
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

restart, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
if restart and rank == 0:
    time.sleep(4)
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
dist.all_reduce(torch.ones(1))
if not restart and rank == 1:
    os._exit(1)
if not restart:
    time.sleep(3600)  # torchrun ends it
print(f"rank {rank} met the others in start {restart}", flush=True)
os._exit(0)  # as the program ends: at the interpreter's end torch may abort a group of two
