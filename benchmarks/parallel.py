"""What a language model holds and sends in a step, field by field: python benchmarks/parallel.py

The preset `1m`, 16 windows of 256 tokens. Bytes held are those that a forward pass leaves for its
backward pass, on the CPU; what a field costs in time is printed beside it, without an aim. One
figure a line: NAME VALUE AIM holds|short.
"""

import statistics
import time

import torch
from figures import tell

from ml_assets.spec.gpt import Gpt
from ml_assets.training.distributed.blocks import recompute
from ml_assets.training.models.gpt import GptNetwork
from ml_assets_tests.training.gpt_cases import MEMORY, held_bytes

MODEL = Gpt.model_validate({"family": "gpt", "preset": "1m"})
VOCABULARY, WINDOWS, CONTEXT = 2048, 16, 256
TURNS = 5


def main() -> None:
    """Print each figure with its aim."""
    torch.set_num_threads(1)
    held: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for mode in MEMORY:
        network = GptNetwork(MODEL, VOCABULARY)
        recompute(network, mode)
        windows = torch.randint(0, VOCABULARY, (WINDOWS, CONTEXT + 1), dtype=torch.int32)
        held[mode] = held_bytes(network, windows)
        seconds[mode] = statistics.median(pass_seconds(network, windows) for _ in range(TURNS))
        print(f"held_mib_{mode} {held[mode] / 2**20:.1f}")
        print(f"pass_ms_{mode} {1000 * seconds[mode]:.0f}")
    for mode, aim in (("block", 0.15), ("selective", 0.65)):
        tell(f"held_{mode}_to_none", held[mode] / held["none"], aim)


def pass_seconds(network: GptNetwork, windows: torch.Tensor) -> float:
    """CPU seconds of a forward and a backward pass."""
    began = time.process_time()
    network(torch.zeros(len(windows), 0), windows, None).sum().backward()
    return time.process_time() - began


if __name__ == "__main__":
    main()
