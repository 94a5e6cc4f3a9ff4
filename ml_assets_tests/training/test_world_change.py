"""Two processes, then one, then three: the same losses, and every row exactly once an epoch."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from safetensors.numpy import load_file

from ml_assets.assets.training_set.shards import load_schema
from ml_assets.spec.training import Mlp, TrainingSpec
from ml_assets.spec.training_program import Ref, Split
from ml_assets.spec.training_program.events import DrawnRows, EpochEnded, Progress, Warning
from ml_assets.spec.training_program.on_demand import RowsOnDemand
from ml_assets.store.row_encoding import encoded_bytes
from ml_assets.store.s3.objects import S3Objects
from ml_assets_tests.servers.s3 import BUCKET, S3Server
from ml_assets_tests.training.conftest import FEATURES, LABEL, SPEC, Attempt, Sessions, frame
from ml_assets_tests.training.test_exactness import left_at
from ml_assets_tests.worlds.shards import write_parts

ROWS = 1000
TEN = SPEC.model_copy(
    update={
        "epochs": 2,
        "batch_size": 90,
        "microbatches": 10,  # three processes do not divide them
        "accumulate": 2,
        "evaluate_every": 1,
        "keep_last": 100,
    }
)
BLOCKS = TEN.model_copy(update={"order": "blocks", "block_rows": 16, "block_window": 2})
EPOCH, STEPS = 6, 12
"""Steps of an epoch, the last one a short one, and of the training."""


@dataclass(frozen=True)
class Recorded(Attempt):
    """An attempt whose every step's reads of the training split are written down."""

    def command(self) -> list[str]:
        command = super().command()
        place = command.index("ml_assets.training")
        told = str(self.folder / f"read-{self.request.attempt}")
        return [*command[:place], "ml_assets_tests.training.recording", told, *command[place + 1 :]]

    def read(self, first: int, last: int) -> list[int]:
        """The rows that all ranks read in the steps from ``first`` to before ``last``."""
        files = self.folder.glob(f"read-{self.request.attempt}.*")
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return [row for line in lines if first <= line["step"] < last for row in line["units"]]


def test_what_powersgd_has_not_sent_lies_in_the_checkpoints(sessions: Sessions) -> None:
    """The same bits on as many processes; on others the same sum of what is unsent."""
    changes = {"strategy": "replicate", "communication_hook": "powersgd", "keep_last": 100}
    spec = SPEC.model_copy(update={**changes, "epochs": 2})
    wide = Mlp(family="mlp", width=64, depth=2)
    first = sessions.attempt("s", spec=spec, model=wide)
    assert first.run() == 0
    weights, losses = first.weights(), first.validation_losses()
    resume = left_at(first, 10)
    again = sessions.attempt("s", number=2, spec=spec, model=wide, resume=resume)
    assert again.run() == 0
    assert again.weights() == weights
    resume = left_at(again, 10)
    three = sessions.attempt("s", number=3, procs=3, spec=spec, model=wide, resume=resume)
    assert three.run() == 0
    found = three.validation_losses()
    assert min(found) == 15
    assert max(abs(found[step] - losses[step]) for step in found) < 1e-4


def started(
    sessions: Sessions,
    number: int,
    procs: int,
    resume: Ref | None,
    spec: TrainingSpec = TEN,
    fetched: RowsOnDemand | None = None,
) -> Recorded:
    made = sessions.attempt("s", number=number, procs=procs, spec=spec, resume=resume)
    request = made.request.model_copy(update={"on_demand": fetched})
    attempt = Recorded(made.folder, request)
    assert attempt.run() == 0
    return attempt


def counted(attempt: Attempt) -> set[int]:
    """The epochs that an attempt ended, each of which drew every row once by its own count."""
    ended = [event for event in attempt.events() if isinstance(event, EpochEnded)]
    assert all(event.drawn == DrawnRows.all_of(ROWS) for event in ended)
    return {event.epoch for event in ended}


@pytest.mark.daemon
@pytest.mark.parametrize("spec", [TEN, BLOCKS], ids=["rows", "blocks"])
def test_worlds_that_change_within_an_epoch_lose_no_row_and_change_no_loss(
    sessions: Sessions, spec: TrainingSpec
) -> None:
    two = started(sessions, 1, 2, None, spec)
    whole = two.validation_losses()
    one = started(sessions, 2, 1, left_at(two, 4), spec)
    three = started(sessions, 3, 3, left_at(one, 8), spec)
    assert list(whole) == list(range(1, STEPS + 1))

    first = two.read(0, 4) + one.read(4, EPOCH)
    second = one.read(EPOCH, 8) + three.read(8, STEPS)
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second, "each epoch has an order of its own"
    assert not one.read(0, 4) and not three.read(0, 8), "nothing is read again"
    assert (counted(two), counted(one), counted(three)) == ({1, 2}, {1, 2}, {2})

    losses = one.validation_losses() | three.validation_losses()
    assert list(losses) == list(range(5, STEPS + 1))
    assert max(abs(losses[step] - whole[step]) for step in losses) < 1e-5

    warnings = [event.message for event in three.events() if isinstance(event, Warning)]
    told = "3 processes do not divide 10 microbatches: 17% of their time is spent waiting"
    assert told in warnings


@pytest.mark.daemon
def test_rows_that_are_fetched_are_those_of_a_set_that_is_here_also_with_fewer_processes(
    tmp_path: Path, bucket: S3Server
) -> None:
    """Two pods of a process each, then one: it has all microbatches, and twice the disk."""
    objects = S3Objects(tmp_path / "home", f"s3://{BUCKET}/state")
    parts: dict[Split, list[pl.LazyFrame]] = {
        "train": [frame(600, 0), frame(400, 600)],
        "validation": [frame(300, 2000)],
    }
    data = write_parts(parts, FEATURES, LABEL, objects.folder("shards", "p"))
    objects.publish(data)
    sessions = Sessions(tmp_path, data)
    fetched = RowsOnDemand(
        uri=objects.address(data).uri.rpartition("/")[0],
        scratch=str(tmp_path / "rows"),
        bytes=30 * BLOCKS.block_rows * encoded_bytes(load_schema(data)),
    )
    two = started(sessions, 1, 2, None, BLOCKS, fetched)
    resume, twice = left_at(two, 4), fetched.model_copy(update={"bytes": 2 * fetched.bytes})
    one = started(sessions, 2, 1, resume, BLOCKS, twice)
    weights, losses = one.weights(), one.validation_losses()
    assert sorted(two.read(0, 4) + one.read(4, EPOCH)) == list(range(ROWS))

    here = started(sessions, 3, 1, left_at(one, 4), BLOCKS)
    assert here.weights() == weights, "to the bit"
    assert [here.read(n, n + 1) for n in range(4, STEPS)] == [
        one.read(n, n + 1) for n in range(4, STEPS)
    ]
    whole = two.validation_losses()
    assert list(losses) == list(range(5, STEPS + 1))
    assert max(abs(losses[step] - whole[step]) for step in losses) < 1e-5


def test_adafactor_goes_on_in_one_process_from_two(sessions: Sessions) -> None:
    spec = TrainingSpec(
        **{**TEN.model_dump(), "optimizer": "adafactor", "strategy": "replicate", "epochs": 1}
    )
    two = sessions.attempt("two", spec=spec)
    assert two.run() == 0
    whole = two.validation_losses()
    one = sessions.attempt("two", number=2, procs=1, spec=spec, resume=left_at(two, 3))
    assert one.run() == 0
    losses = {step: one.validation_losses()[step] for step in (4, 5, 6)}
    assert max(abs(losses[step] - whole[step]) for step in losses) < 1e-5


MANY = SPEC.model_copy(
    update={
        "epochs": 1,
        "batch_size": 96,
        "microbatches": 96,
        "evaluate_every": 1,
        "keep_last": 100,
        "strategy": "replicate",
    }
)
BEFORE, AFTER = 32, 24
"""Processes; all of them take 8 GB."""
LOST_AT = 4
"""The step after which a quarter of the processes is gone."""
PATIENCE = 900
"""Seconds for a training whose processes share two cores."""


def told_steps(attempt: Attempt) -> list[int]:
    return [event.step for event in attempt.events() if isinstance(event, Progress)]


def first_step(attempt: Attempt) -> float:
    """Seconds from starting the attempt to the first step that it adds; it then runs to its end."""
    begun = time.monotonic()
    training = attempt.start()
    try:
        while not [step for step in told_steps(attempt) if step > LOST_AT]:
            assert training.poll() in (None, 0), f"ended with {training.returncode}"
            assert time.monotonic() - begun < PATIENCE
            time.sleep(0.1)
        seconds = time.monotonic() - begun
        assert training.wait(PATIENCE) == 0
    finally:
        if training.poll() is None:
            os.killpg(training.pid, 9)
    return seconds


@pytest.mark.daemon
def test_24_of_32_processes_go_on_to_the_weights_of_an_undisturbed_run(
    sessions: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    """96 microbatches are 3 for each of 32 processes, then 4 for each of 24: none ever waits."""
    before = sessions.attempt("s", procs=BEFORE, spec=MANY)
    assert before.start().wait(PATIENCE) == 0
    after = sessions.attempt("s", number=2, procs=AFTER, spec=MANY, resume=left_at(before, LOST_AT))
    seconds = first_step(after)
    with capsys.disabled():
        print(f"\n{AFTER} of {BEFORE} processes: {seconds:.1f} s from the start to the next step")

    alone = sessions.attempt("alone", procs=1, spec=MANY)
    assert alone.run() == 0
    assert min(told_steps(after)) == LOST_AT, "it went on where it was left"
    expected, found = (
        load_file(Path(one.request.output.model) / "weights.safetensors") for one in (alone, after)
    )
    assert found.keys() == expected.keys()
    assert max(float(abs(found[name] - expected[name]).max()) for name in found) < 1e-5
