"""What a language model holds and sends in a step, field by field: python benchmarks/parallel.py

The preset `1m`, 16 windows of 256 tokens. Bytes held are those that a forward pass leaves for its
backward pass, on the CPU; what it costs in time is printed beside them, without an aim. Bytes sent
are those that one of two processes hands to the ring of each sum and gathering (Patarasuk and Yuan,
2009): ``(n - 1) / n`` of the whole, twice for a sum that all get. One figure a line: NAME VALUE AIM
holds|short.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from figures import tell
from generated import train_request

from ml_assets.spec.gpt import Gpt
from ml_assets.spec.parallel import Strategy
from ml_assets.spec.training import TrainingSpec
from ml_assets.spec.training_program import Ref
from ml_assets.training.distributed.blocks import recompute
from ml_assets.training.distributed.ranks import join
from ml_assets.training.models.gpt import GptNetwork
from ml_assets.training.rows.arrays import open_set
from ml_assets.training.step import StopFlags, assemble, initial_network
from ml_assets_tests.training.gpt_cases import MEMORY, held_bytes
from ml_assets_tests.training.texts import text_set

MODEL = Gpt.model_validate({"family": "gpt", "preset": "1m"})
VOCABULARY, WINDOWS, CONTEXT = 2048, 16, 256
TURNS = 5
HELD = {"block": 0.15, "selective": 0.65}
SENT: dict[Strategy, dict[str, float]] = {
    "replicate": {"bf16": 0.51, "powersgd": 0.06},
    "shard": {"bf16": 0.76},
}
"""Of a sharded network the weights are gathered as they are."""
WAYS: dict[str, dict[str, str]] = {
    "fp32": {},
    "bf16": {"gradient_precision": "bf16"},
    "powersgd": {"communication_hook": "powersgd"},
}
TIMES_OF_A_RING = {"all_reduce": 2, "reduce_scatter_single": 1, "all_gather_single": 1}


def main() -> None:
    """Print each figure with its aim."""
    torch.set_num_threads(1)
    held = {mode: measured(mode) for mode in MEMORY}
    for mode, aim in HELD.items():
        tell(f"held_{mode}_to_none", held[mode] / held["none"], aim)
    with tempfile.TemporaryDirectory() as folder:
        texts = text_set(Path(folder), 800, CONTEXT)
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        asked = [__file__, texts.uri, texts.digest]
        logs = f"--log-dir={folder}/ranks"
        subprocess.run([sys.executable, *torchrun, logs, *asked], check=True)


def measured(mode: Any) -> int:
    """Bytes held in a mode; they are printed, and how long a pass takes."""
    network = GptNetwork(MODEL, VOCABULARY)
    recompute(network, mode)
    windows = torch.randint(0, VOCABULARY, (WINDOWS, CONTEXT + 1), dtype=torch.int32)
    held = held_bytes(network, windows)
    seconds = statistics.median(pass_seconds(network, windows) for _ in range(TURNS))
    print(f"held_mib_{mode} {held / 2**20:.1f}")
    print(f"pass_cpu_ms_{mode} {1000 * seconds:.0f}", flush=True)
    return held


def pass_seconds(network: GptNetwork, windows: torch.Tensor) -> float:
    """CPU seconds of a forward and a backward pass."""
    began = time.process_time()
    network(torch.zeros(len(windows), 0), windows, None).sum().backward()
    return time.process_time() - began


def of_two(data: Ref) -> None:
    """Count what one of two processes sends in a step."""
    torch.set_num_threads(1)
    ranks = join()
    count = Count(ranks.world)
    folder, schema = open_set(data)
    for strategy, aims in SENT.items():
        sent: dict[str, int] = {}
        for way, how in WAYS.items():
            if way == "powersgd" and strategy != "replicate":
                continue
            of_all = {"batch_size": WINDOWS, "microbatches": WINDOWS, "strategy": strategy}
            spec = TrainingSpec.model_validate({**of_all, **how})
            request = train_request(folder.parent / "out", data, MODEL, spec)
            network, _ = initial_network(request, schema)
            stepper = assemble(request, network, folder, schema, ranks)
            for step in range(2):  # the first one compares branches
                count.bytes = 0
                stepper.take(step, None, lambda: StopFlags(False, False))
            sent[way] = count.bytes
            if ranks.rank == 0:
                print(f"sent_kib_{strategy}_{way} {count.bytes / 1024:,.0f}", flush=True)
        for way, aim in aims.items() if ranks.rank == 0 else ():
            tell(f"sent_{strategy}_{way}_to_fp32", sent[way] / sent["fp32"], aim)


class Count:
    """Counts bytes on their way into torch's collectives."""

    def __init__(self, world: int) -> None:
        self.bytes = 0
        for name, times in TIMES_OF_A_RING.items():
            setattr(dist, name, self._counted(getattr(dist, name), times * (world - 1) / world))

    def _counted(self, call: Callable[..., Any], share: float) -> Callable[..., Any]:
        def counted(tensor: torch.Tensor, *others: Any, **named: Any) -> Any:
            whole = max(one.nbytes for one in (tensor, *others) if isinstance(one, torch.Tensor))
            self.bytes += int(whole * share)
            return call(tensor, *others, **named)

        return counted


if __name__ == "__main__":
    if "RANK" in os.environ:
        of_two(Ref(uri=sys.argv[1], digest=sys.argv[2]))
        sys.stdout.flush()
        os._exit(0)  # as the program itself ends: see ``leave``
    main()
