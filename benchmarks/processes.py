"""Two processes against one: python benchmarks/processes.py [TURNS]

The same training through the launcher, sharded over two processes and on one alone, in turns; the
program's own rows per second between evaluations, the best of the turns. Two idle cores are
needed: a process that waits for a core makes the other one wait too. One figure a line: NAME VALUE
AIM holds|short.
"""

import sys
import tempfile
from pathlib import Path

from figures import tell
from generated import training_set

from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets.spec.training import TabM, TrainingSpec
from ml_assets.spec.training_program import Ref
from ml_assets.spec.training_program.events import Event, Metrics

NEEDS = ("cores 2",)
EACH_IS = "of the best of five turns"
MEDIAN_OF = 5

ROWS = 60_000
MODEL = TabM(family="tabm", width=128, depth=2, members=12)
SPEC = TrainingSpec(epochs=2, batch_size=3072, microbatches=24, evaluate_every=10, patience=100)
SPEED = "training_throughput_samples_per_sec"


def main() -> None:
    """Print each figure with its aim."""
    turns = int((sys.argv[1:] or ["5"])[0])
    best = {1: 0.0, 2: 0.0}
    with tempfile.TemporaryDirectory() as folder:
        data = training_set(ROWS, Path(folder) / "shards")
        for turn in range(turns):
            for processes, known in best.items():
                found = rows_per_second(Path(folder) / f"{turn}-{processes}", data, processes)
                best[processes] = max(known, found)
    print(f"rows_per_second_1 {best[1]:,.0f}")
    print(f"rows_per_second_2 {best[2]:,.0f}")
    why = (
        "The sum of the gradients does not overlap the backward pass, so a core waits in each step."
    )
    tell("rows_per_core_second_2_to_1", best[2] / 2 / best[1], 0.92, at="least", why=why)


def rows_per_second(objects: Path, data: Ref, processes: int) -> float:
    """The best window of a training on so many processes."""
    events: list[Event] = []
    training = SPEC.model_copy(update={"processes": processes})
    LocalLauncher(objects).train(TrainJob("benchmark", MODEL, training, data), events.append)
    return max(e.metrics.get(SPEED, 0.0) for e in events if isinstance(e, Metrics))


if __name__ == "__main__":
    main()
