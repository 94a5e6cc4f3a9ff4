"""Diagnosis: each fault is named with its fix, and nothing healthy is given a name."""

import hashlib
import subprocess
import time
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ml_assets.spec.training import Mlp, ModelSpec, TabM, TrainingSpec
from ml_assets.spec.training_program import Ref, TrainResult
from ml_assets.spec.training_program.events import EpochEnded, Failed
from ml_assets.training.diagnosis import Evaluated, advise, growing_memory, is_out_of_memory
from ml_assets.training.rows.arrays import Rows, SplitArrays
from ml_assets_tests.training.conftest import FEATURES, LABEL, Attempt, Sessions, frame
from ml_assets_tests.training.networks import CONVOLUTION, KEEPING, MODEL, code
from ml_assets_tests.training.test_sanity import SETS
from ml_assets_tests.worlds.shards import spoil, write_shards

MLP = Mlp(family="mlp", width=16, depth=2, dropout=0.0)
TABM = TabM(family="tabm", width=16, depth=2, members=4)
ALONE = TrainingSpec(
    epochs=3,
    batch_size=96,
    microbatches=12,
    learning_rate=0.01,
    evaluate_every=6,
    patience=100,
    strategy="replicate",
    processes=1,
)


def in_process(
    sessions: Sessions, data: Ref, model: ModelSpec = MLP, **changes: Any
) -> TrainResult:
    spec = ALONE.model_copy(update=changes)
    name = hashlib.sha256(repr((data, model, spec)).encode()).hexdigest()[:12]
    return sessions.attempt(name, procs=1, spec=spec, model=model, data=data).run_here()


def names(result: TrainResult) -> list[str]:
    return [advice.split(":")[0] for advice in result.advice]


# --- planted faults -------------------------------------------------------------------------------


def test_a_network_that_keeps_what_it_made_is_growing_memory(
    sessions: Sessions, tmp_path: Path
) -> None:
    for network, found in ((KEEPING, ["growing memory"]), (CONVOLUTION, [])):
        own = code(tmp_path / str(len(found)), network=network)
        spec = ALONE.model_copy(update={"evaluate_every": 3})
        name = f"keeping-{len(found)}"
        attempt = sessions.attempt(name, procs=1, spec=spec, model=MODEL, code=own)
        assert attempt.run() == 0  # a process of its own: this one may have memory to spare
        done = attempt.result()
        assert names(done) == found
        assert not found or "MB more with each step" in done.advice[0]


def test_memory_that_settles_is_no_growth() -> None:
    def history(held: list[float]) -> list[Evaluated]:
        even = {"train_loss": 0.5, "validation_loss": 0.5}
        return [
            Evaluated.of(10 * n, 1.0, {**even, "train_loss": 0.5 - n / 100, "memory_held_mb": mb})
            for n, mb in enumerate(held, 1)
        ]

    rising = [100.0 + 10 * n for n in range(12)]
    assert growing_memory(history(rising))
    assert growing_memory(history([*rising[:-1], rising[-2]])) is None
    assert growing_memory(history([200 - 100 / 2**n for n in range(12)])) is None
    assert growing_memory(history([1000.0 + n for n in range(12)])) is None
    assert growing_memory(history(rising[:7])) is None
    assert growing_memory(history([0.0] * 12)) is None


def test_a_learning_rate_near_zero_is_a_plateau(sessions: Sessions) -> None:
    result = in_process(sessions, sessions.data, learning_rate=1e-7)
    assert names(result) == ["plateau"]
    assert "Raise training.learning_rate" in result.advice[0]


def test_a_learning_rate_that_is_too_high_is_a_divergence(sessions: Sessions) -> None:
    result = in_process(
        sessions, sessions.data, learning_rate=1.0, warmup=0.0, schedule="constant", clip_norm=1e9
    )
    assert names(result) == ["divergence"]
    assert "Lower training.learning_rate" in result.advice[0]


def test_many_epochs_of_a_few_rows_are_overfitting(sessions: Sessions, tmp_path: Path) -> None:
    splits = {"train": frame(48, 0), "validation": frame(300, 2000), "holdout": frame(9, 1)}
    few = write_shards(splits, FEATURES, LABEL, tmp_path / "few")  # pyright: ignore[reportArgumentType]
    result = in_process(
        sessions, few, MLP.model_copy(update={"width": 64}), epochs=80, batch_size=24
    )
    assert names(result) == ["overfitting"]
    assert "model.dropout" in result.advice[0]


def test_a_loader_that_takes_its_time_is_named(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = SplitArrays.take_units

    def slowly(self: SplitArrays, units: Any) -> Rows:
        time.sleep(0.02)
        return take(self, units)

    monkeypatch.setattr(SplitArrays, "take_units", slowly)
    result = in_process(sessions, sessions.data)
    assert names(result) == ["slow loader"]
    assert "faster disk" in result.advice[0]


def failed(attempt: Attempt) -> list[Failed]:
    return [event for event in attempt.events() if isinstance(event, Failed)]


def test_a_network_that_does_not_fit_into_memory_exits_73_with_the_fix(sessions: Sessions) -> None:
    huge = MLP.model_copy(update={"width": 2**22})
    attempt = sessions.attempt("huge", procs=1, model=huge, spec=ALONE)
    assert attempt.run_within(4 << 30) == 73  # where memory is overcommitted, it takes all there is
    (event,) = failed(attempt)
    assert event.exit_code == 73
    assert "Lower training.batch_size and raise training.accumulate" in event.reason


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ..."), True),
        (OSError(12, "Cannot allocate memory"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory is only a word here"), False),
    ],
)
def test_memory_that_ran_out_is_known_in_all_its_words(error: Exception, is_memory: bool) -> None:
    assert is_out_of_memory(error) is is_memory


def planted(attempt: Attempt, fault: str) -> int:
    """Run with a fault of ``plants.py``."""
    command = attempt.command()
    place = command.index("ml_assets.training")
    command[place - 1 : place + 1] = [str(Path(__file__).with_name("plants.py")), fault]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, cwd=Path.cwd())
    return done.returncode


@pytest.mark.parametrize("strategy", ["replicate", pytest.param("shard", marks=pytest.mark.daemon)])
def test_a_rank_that_skips_a_branch_is_named_with_its_parameters(
    sessions: Sessions, strategy: str
) -> None:
    spec = ALONE.model_copy(update={"strategy": strategy, "processes": 2})
    attempt = sessions.attempt("skip", procs=2, model=MLP, spec=spec)
    assert planted(attempt, "skips_a_branch") != 0
    assert {event.exit_code for event in failed(attempt)} == {72}
    assert "rank 1 skips layers.1.weight, layers.1.bias" in failed(attempt)[0].reason


def test_what_is_no_exception_becomes_an_event_too_and_no_rank_aborts(sessions: Sessions) -> None:
    spec = ALONE.model_copy(update={"processes": 2})
    attempt = sessions.attempt("unheard", procs=2, model=MLP, spec=spec)
    assert planted(attempt, "raises_no_exception") == 1, "torchrun's own code for a rank's end"
    assert {(event.exit_code, event.reason) for event in failed(attempt)} == {
        (70, "Unheard: a save that failed")
    }


def test_an_epoch_that_draws_a_row_twice_and_another_never_ends_in_an_error(
    sessions: Sessions,
) -> None:
    attempt = sessions.attempt("twice", procs=2, model=MLP, spec=ALONE)
    assert planted(attempt, "draws_a_row_twice") != 0
    assert not [event for event in attempt.events() if isinstance(event, EpochEnded)]
    assert {event.exit_code for event in failed(attempt)} == {70}
    assert "epoch 1 drew other rows than it was to draw" in failed(attempt)[0].reason


# --- what is no number names rank, batch and rows -------------------------------------------------


def one_bad_row(folder: Path, row: int) -> Ref:
    splits = {"train": frame(1000, 0), "validation": frame(100, 1), "holdout": frame(9, 2)}
    ref = write_shards(splits, FEATURES, LABEL, folder)  # pyright: ignore[reportArgumentType]

    def bad(label: NDArray[np.generic]) -> None:
        label[row] = np.nan

    return spoil(ref, "train", "label", bad)


@pytest.mark.parametrize("strategy", [pytest.param("replicate", marks=pytest.mark.daemon), "shard"])
def test_a_row_that_is_no_number_is_named_with_its_rank_and_step(
    sessions: Sessions, tmp_path: Path, strategy: str
) -> None:
    spec = ALONE.model_copy(update={"strategy": strategy, "processes": 2, "accumulate": 2})
    data = one_bad_row(tmp_path / "set", 577)
    attempt = sessions.attempt("row", procs=2, model=MLP, spec=spec, data=data)
    assert attempt.run() != 0
    told = failed(attempt)
    assert {event.exit_code for event in told} == {66}
    (reason,) = {event.reason for event in told}
    assert "nothing was updated" in reason
    assert "the features or label of 1 of 48 rows is not finite. Look at rows 577 of" in reason
    assert "Rank 0 was first, in its batch" in reason or "Rank 1 was first, in its batch" in reason


def test_a_gradient_that_is_no_number_is_told_from_a_loss(sessions: Sessions) -> None:
    attempt = sessions.attempt("slope", procs=1, model=MLP, spec=ALONE)
    assert planted(attempt, "infinite_slope") == 66
    said = failed(attempt)[0].reason
    assert "The gradient of every row of every rank is not finite, though each loss is" in said


# --- nothing healthy gets a name ------------------------------------------------------------------


def test_twenty_healthy_trainings_get_no_name(sessions: Sessions, tmp_path: Path) -> None:
    ways = [("adamw", 0.01), ("nadam", 0.01), ("adafactor", 0.01), ("sgd", 0.05), ("adamw", 0.002)]
    sets = {task: make(tmp_path / task) for task, make in SETS.items()}
    models = cycle([MLP, TABM, Mlp(family="mlp", width=64, depth=1)])
    found: dict[Any, list[str]] = {}
    for number, ((task, data), (optimizer, rate)) in enumerate(product(sets.items(), ways)):
        run = {"optimizer": optimizer, "learning_rate": rate, "seed": number}
        result = in_process(sessions, data, next(models), **run)
        found[task, optimizer, rate] = names(result)
    assert len(found) == 20
    assert {run: said for run, said in found.items() if said} == {}


# --- the bounds -----------------------------------------------------------------------------------


def history(
    train: list[float], validation: list[float], waits: float = 0.0, latency: float = 30.0
) -> list[Evaluated]:
    return [
        Evaluated(
            step=10 * number + 10,
            began=train[0],
            train_loss=now,
            validation_loss=judged,
            data_wait_share=waits,
            data_loading_latency_ms=latency,
        )
        for number, (now, judged) in enumerate(zip(train, validation, strict=True))
    ]


@pytest.mark.parametrize(
    ("train", "validation", "expected"),
    [
        ([0.69, 0.69, 0.69], [0.690, 0.690, 0.690], ["plateau"]),
        ([0.69, 0.69], [0.690, 0.690], []),  # too few to tell
        ([0.69, 0.45, 0.45], [0.450, 0.450, 0.450], []),  # done before the first evaluation
        ([0.69, 0.68, 0.68], [0.690, 0.688, 0.685], []),  # a weak signal
        ([0.7, 1.5, 4.0], [0.7, 1.5, 4.0], ["divergence"]),
        ([0.7, 7.0, 0.7], [0.7, 3.0, 0.6], ["divergence"]),  # what is left learns nothing
        ([0.7, 1.5, 0.4], [0.7, 1.5, 0.4], []),  # it came back
        ([0.7, 0.4, 0.65], [0.7, 0.5, 0.7], []),  # a rough patch
        ([0.7, 0.5, 0.4, 0.3, 0.2], [0.6, 0.5, 0.6, 0.7, 0.8], ["overfitting"]),
        ([0.7, 0.5, 0.4, 0.3, 0.2], [0.6, 0.5, 0.52, 0.55, 0.58], []),  # what patience is for
        ([0.7, 0.5, 0.5, 0.5, 0.5], [0.6, 0.5, 0.6, 0.7, 0.8], []),  # the months differ
    ],
)
def test_the_bounds(train: list[float], validation: list[float], expected: list[str]) -> None:
    assert [said.split(":")[0] for said in advise(history(train, validation))] == expected


def test_a_slow_loader_is_one_over_most_of_the_training() -> None:
    losses = [0.7, 0.6, 0.5]
    assert advise(history(losses, losses, waits=0.1)) == ()
    assert advise(history(losses, losses, waits=0.4))[0].startswith("slow loader: 40%")
    assert advise(history(losses, losses, waits=0.4, latency=1.0)) == (), "steps are tiny"
    once = history(losses, losses)
    cold = [once[0].model_copy(update={"data_wait_share": 0.9}), *once[1:]]
    assert advise(cold) == (), "the first pages come from the disk"
