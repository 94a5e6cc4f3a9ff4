"""Random kills over real trainings: whatever dies, and when, the weights come out the same.

``make long`` runs a few; ``make chaos`` a hundred. Each has a seed, printed where it fails:
``pytest ml_assets_tests/chaos -m chaos -k 'seed-17'`` repeats it.
"""

import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ml_assets.errors import TrainingFailed, TrainingInterrupted
from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets.spec.training_program import Ref, TrainRequest, TrainResult
from ml_assets.spec.training_program.events import Event
from ml_assets_tests.launch.real import ranks, torchruns, train_job, write_set

KILLS = int(os.environ.get("ML_ASSETS_TEST_KILLS", "100"))
A_SESSION = 4
"""Kills that one training has to survive."""
RUNS = 20
"""Times that it is asked for at most: a person, or a schedule, runs it again."""
SAMPLE = (1,)

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc"),
]


def job(data: Ref, procs: int):
    """Some seconds of training on a small network, saved all the time."""
    asked = {"epochs": 40, "evaluate_every": 20, "patience": 999, "checkpoint_minutes": 0.002}
    return train_job(data, **asked, processes=procs, hang_timeout_seconds=2)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Ref:
    return write_set(tmp_path_factory.mktemp("sets"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, data: Ref) -> dict[int, TrainResult]:
    """Processes -> what comes of the training when nobody disturbs it; made where it is needed."""
    return _Undisturbed(tmp_path_factory.mktemp("undisturbed"), data)


class _Undisturbed(dict[int, TrainResult]):
    def __init__(self, folder: Path, data: Ref) -> None:
        self._folder, self._data = folder, data

    def __missing__(self, procs: int) -> TrainResult:
        launcher = LocalLauncher(self._folder / str(procs))
        result = launcher.train(job(self._data, procs), lambda _: None)
        self[procs] = result
        return result


@dataclass
class Monkey:
    """Does harm to the processes of a training at random times, and remembers what."""

    draw: random.Random
    left: int
    done: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)

    def haunt(self) -> None:
        while self.left and not self.over.wait(self.draw.uniform(0.1, 4)):
            pids = ranks()
            if len(pids) < 2:  # between two starts; torchrun alone is no training
                continue
            harm = self.draw.choice([self._rank, self._rank, self._agent, self._all, self._stop])
            harm = self.draw.choice([harm, harm, self._notice])
            try:
                self.done.append(harm(pids))
            except ProcessLookupError:  # it ended while we chose
                continue
            self.left -= 1

    def _rank(self, pids: list[int]) -> str:
        rank = self.draw.randrange(len(pids))
        os.kill(pids[rank], signal.SIGKILL)
        return f"SIGKILL rank {rank}"

    def _agent(self, _: list[int]) -> str:
        for pid in torchruns():
            os.kill(pid, signal.SIGKILL)
        return "SIGKILL torchrun"

    def _all(self, pids: list[int]) -> str:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return "SIGKILL all ranks"

    def _stop(self, pids: list[int]) -> str:
        rank = self.draw.randrange(len(pids))
        os.kill(pids[rank], signal.SIGSTOP)
        return f"SIGSTOP rank {rank}"

    def _notice(self, pids: list[int]) -> str:
        rank = self.draw.randrange(len(pids))
        os.kill(pids[rank], signal.SIGTERM)
        return f"SIGTERM rank {rank}"


def survive(
    seed: int, kills: int, folder: Path, data: Ref, undisturbed: dict[int, TrainResult]
) -> None:
    draw = random.Random(seed)
    procs = draw.choice([2, 2, 3])
    wanted = undisturbed[procs]
    monkey = Monkey(draw, kills)
    haunting = threading.Thread(target=monkey.haunt)
    haunting.start()
    events: list[Event] = []
    try:
        result = trained_at_last(folder, job(data, procs), events)
    finally:
        monkey.over.set()
        haunting.join()
    story = f"seed {seed}, {procs} processes, attempt {result.attempt}: {'; '.join(monkey.done)}"
    print(f"\n{story}")
    assert ranks() == [], story
    assert told_once(events), story
    if fewest_processes(folder) == procs:
        assert result.model.digest == wanted.model.digest, story
    else:  # two kills in a row: it went on with fewer, and float sums come in another order
        assert abs(loss(result) - loss(wanted)) < 1e-5, story


def trained_at_last(folder: Path, asked, events: list[Event]) -> TrainResult:
    """The session's result; it is asked for again where it was told to stop, or gave up."""
    launcher = LocalLauncher(folder, grace=6)
    for _ in range(RUNS):
        events.clear()
        try:
            return launcher.train(asked, events.append)
        except (TrainingInterrupted, TrainingFailed):
            time.sleep(0.1)
    raise AssertionError(f"no result after {RUNS} runs")


def fewest_processes(folder: Path) -> int:
    """That an attempt of the session ran on."""
    requests = folder.glob("sessions/*/attempts/*/request.json")
    return min(TrainRequest.model_validate_json(r.read_bytes()).world.procs for r in requests)


def loss(result: TrainResult) -> float:
    return result.metrics["validation_loss"]


def told_once(events: list[Event]) -> bool:
    numbers = [(event.attempt, event.seq) for event in events]
    checkpoints = [event.checkpoint.uri for event in events if event.kind == "checkpoint"]
    return len(set(numbers)) == len(numbers) and len(set(checkpoints)) == len(checkpoints)


@pytest.mark.daemon
@pytest.mark.parametrize("seed", SAMPLE, ids=lambda seed: f"seed-{seed}")
def test_a_few_kills_do_not_show(
    seed: int, tmp_path: Path, data: Ref, undisturbed: dict[int, TrainResult]
) -> None:
    survive(seed, 2, tmp_path, data, undisturbed)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(100, 100 + -(-KILLS // A_SESSION)), ids="seed-{}".format)
def test_many_kills_do_not_show(
    seed: int, tmp_path: Path, data: Ref, undisturbed: dict[int, TrainResult]
) -> None:
    survive(seed, A_SESSION, tmp_path, data, undisturbed)
