"""Starts the training program, wherever it is: plain Python for one process, else torchrun.

The launcher of a laptop and the program of a pod start it by the same flags.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ml_assets.spec.training_program import World

PROGRAM = (sys.executable, "-m", "ml_assets.training")
TORCHRUN = ("-m", "ml_assets.training.elastic")
RESTARTS = 3
"""Torchrun starts the processes of one attempt again so often."""
JOIN_SECONDS = 86_400
"""A node waits so long for the others. Their images are pulled, they are queued: whoever launched
them knows, and gives up before."""
_KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**32)}
"""Else glibc gives each freed tensor back to the kernel, and its pages are zeroed again in the next
step. Another C library ignores it."""


@dataclass(frozen=True)
class Rendezvous:
    """The place where the nodes of one attempt find each other."""

    endpoint: str
    """host:port of the first node."""
    address: str
    """The address of this node; the nodes are ranked by these, as text."""
    is_host: bool
    run: str
    """Names the attempt: others that come to the same endpoint do not meet it."""


@dataclass(frozen=True)
class Start:
    """The start of the program on one node."""

    program: Sequence[str]
    """The interpreter first."""
    world: World
    logs: Path
    """Folder for what each rank prints."""
    grace: float
    """Seconds from the notice to stop to the end; a rank has to be gone a little before."""
    restarts: int = RESTARTS
    rendezvous: Rendezvous | None = None
    """None: there is one node."""

    @property
    def workers(self) -> bool:
        """True where torchrun starts the program."""
        return self.world.procs > 1 or self.rendezvous is not None

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The command line."""
        if not self.workers:
            return [*self.program, *arguments]
        python, *program = self.program
        torchrun = [python, *TORCHRUN, *self._rendezvous()]
        procs = f"--nproc-per-node={self.world.procs}"
        again = [
            f"--max-restarts={self.restarts}",
            f"--shutdown-timeout={max(1, int(self.grace * 3 / 4))}",
        ]
        # every line that a rank prints says which one did: [rank0]: ...
        named = ["--role=rank", "--tee=3", f"--log-dir={self.logs}"]
        return [*torchrun, procs, *again, *named, *program, *arguments]

    def _rendezvous(self) -> list[str]:
        if self.rendezvous is None:
            return ["--standalone"]
        nodes, met = self.world.nodes, self.rendezvous
        return [
            f"--nnodes={nodes}:{nodes}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={met.endpoint}",
            f"--rdzv-id={met.run}",
            f"--rdzv-conf=is_host={int(met.is_host)},join_timeout={JOIN_SECONDS}",
            f"--local-addr={met.address}",
        ]


def variables(threads: int) -> dict[str, str]:
    """The environment variables of the program, besides what it needs of ours."""
    return {
        "OMP_NUM_THREADS": str(threads),
        # without it a restarted worker reads a dead one's address (pytorch issue 135712)
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        **_KEPT_MEMORY,
    }
