"""From a killed worker to the next training step: python benchmarks/recovery.py [TURNS]

Against a cold start of the same training (from asking the launcher to the first step), two
processes on this machine. Wall time, the medians of five turns; one figure a line: NAME VALUE AIM
holds|short.
"""

import os
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from figures import tell
from generated import training_set

from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets.launch.local.supervisor import descendants
from ml_assets.spec.training import Mlp, TrainingSpec
from ml_assets.spec.training_program import Ref
from ml_assets.spec.training_program.events import Event, Metrics, Progress

EACH_IS = "the median of five turns"

MODEL = Mlp(family="mlp", width=128, depth=2)
SPEC = TrainingSpec(
    epochs=4, batch_size=960, microbatches=24, evaluate_every=1, patience=1000, processes=2
)
KILLED_AT = 8


def main() -> None:
    """Print each figure with its aim."""
    turns = int((sys.argv[1:] or ["5"])[0])
    with tempfile.TemporaryDirectory() as folder:
        data = training_set(9600, Path(folder) / "shards")
        told = [one_kill(Path(folder) / str(turn), data) for turn in range(turns)]
    cold = statistics.median(story.cold for story in told)
    recovered = statistics.median(story.recovered for story in told)
    print(f"cold_start_seconds {cold:.2f}")
    tell("killed_worker_to_next_step_seconds", recovered, 2.5)
    tell("recovery_to_cold_start", recovered / cold, 1.5)


@dataclass
class Story:
    """When the steps of one training came, in monotonic seconds."""

    began: float = field(default_factory=time.monotonic)
    first_step: float = 0.0
    killed: float = 0.0
    resumed: bool = False
    next_step: float = 0.0

    @property
    def cold(self) -> float:
        return self.first_step - self.began

    @property
    def recovered(self) -> float:
        return self.next_step - self.killed

    def take(self, event: Event) -> None:
        """Kill a worker at its step; note the first step after training was resumed."""
        if isinstance(event, Progress):
            self.resumed = self.resumed or event.message.startswith("resumed")
        if not isinstance(event, Metrics):
            return
        now = time.monotonic()
        self.first_step = self.first_step or now
        if self.resumed and not self.next_step:
            self.next_step = now
        if not self.killed and event.step == KILLED_AT:
            os.kill(workers()[-1], signal.SIGKILL)
            self.killed = time.monotonic()


def one_kill(objects: Path, data: Ref) -> Story:
    """Train to the end, with one worker killed on the way."""
    story = Story()
    LocalLauncher(objects).train(TrainJob("benchmark", MODEL, SPEC, data), story.take)
    return story


def workers() -> list[int]:
    """The processes that train, below this one."""
    return [pid for pid in descendants(os.getpid()) if _is_rank(pid)]


def _is_rank(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("rank")
    except OSError:  # it ended while we looked
        return False


if __name__ == "__main__":
    main()
