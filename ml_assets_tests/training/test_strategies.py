"""Replicated, sharded and hybrid training: the same numbers, names and bits."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ml_assets.spec.base import canonical_json
from ml_assets.spec.parallel import split_of
from ml_assets.spec.training_program import Ref
from ml_assets_tests.training.conftest import Sessions
from ml_assets_tests.training.strategy_cases import OPTIMIZERS, PRECISIONS, STRATEGIES

Taken = dict[str, dict[str, Any]]
ROUNDING = {"fp32": 1e-6, "bf16": 2e-3, "fp16": 1e-4}
"""How far losses may differ where sums are added up in another order."""


def steps_taken(folder: Path, data: Ref, processes: int) -> Taken:
    request = folder / "request.json"
    request.write_bytes(canonical_json(Sessions(folder, data).attempt("cases").request))
    out = folder / f"{processes}.json"
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    torchrun.append(f"--log-dir={folder / 'ranks'}")
    program = ["-m", "ml_assets_tests.training.strategy_cases", str(request), str(out)]
    command = [sys.executable, *(torchrun if processes > 1 else []), *program]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory, data: Ref) -> Taken:
    """The first steps of every case on four processes."""
    return steps_taken(tmp_path_factory.mktemp("four"), data, 4)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, data: Ref) -> Taken:
    """The same in one process."""
    return steps_taken(tmp_path_factory.mktemp("one"), data, 1)


def distance(first: dict[str, Any], second: dict[str, Any]) -> float:
    """The largest difference between two trainings' losses and gradient norms."""
    pairs = zip(first["steps"], second["steps"], strict=True)
    numbers = [(a, b) for one, two in pairs for a, b in zip(one, two, strict=True)]
    return max(abs(float.fromhex(a) - float.fromhex(b)) for a, b in numbers)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("case", ["adamw", "sgd", "nadam", "accumulated", *PRECISIONS, "wide"])
def test_every_strategy_has_the_losses_of_replicas(four: Taken, case: str, strategy: str) -> None:
    bound = ROUNDING.get(case, ROUNDING["bf16"] if case == "wide" else ROUNDING["fp32"])
    assert distance(four[f"{case} {strategy}"], four[f"{case} replicate"]) < bound


@pytest.mark.parametrize("case", [*OPTIMIZERS, *PRECISIONS])
def test_four_processes_have_the_losses_of_one(four: Taken, one: Taken, case: str) -> None:
    name = f"{case} replicate"
    assert distance(four[name], one[name]) < ROUNDING.get(case, ROUNDING["fp32"])


def test_optimizers_and_precisions_are_what_their_names_say(one: Taken) -> None:
    last = [one[f"{name} replicate"]["steps"][-1][0] for name in [*OPTIMIZERS, *PRECISIONS]]
    assert len(set(last)) == len(last)


@pytest.mark.parametrize("case", ["augmented", "weighed"])
def test_rows_are_changed_and_weighed_alike_in_any_world(
    four: Taken, one: Taken, case: str
) -> None:
    assert distance(four[case], one[case]) < 1e-6
    assert distance(one[case], one["adamw replicate"]) > 0.01


def test_what_a_thread_reads_ahead_is_what_the_step_would_have_read(
    four: Taken, one: Taken
) -> None:
    for taken in (four, one):
        assert taken["ahead"]["steps"] == taken["as ahead"]["steps"]
        assert taken["ahead"]["steps"] != taken["adamw replicate"]["steps"]  # its schedule is short


def test_gradients_that_are_sent_as_thin_matrices_are_near(four: Taken) -> None:
    assert 0 < distance(four["wide thin sums"], four["wide sums"]) < 0.2


def test_a_resume_half_way_takes_the_same_steps_bit_for_bit(four: Taken, one: Taken) -> None:
    for taken in (four, one):
        for name, case in taken.items():
            assert case["steps"][3:] == case["resumed"], name


def test_the_state_has_the_same_names_in_every_strategy(four: Taken) -> None:
    small = [case for name, case in four.items() if not name.startswith("wide")]
    assert {tuple(case["names"]) for case in small} == {tuple(small[0]["names"])}
    assert all(case["optimizer_names"] == case["names"] for case in four.values())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_four_batches_one_after_the_other_are_one_of_four_times_the_size(
    four: Taken, one: Taken, strategy: str
) -> None:
    at_once = one["accumulated at once"]
    assert distance(four[f"accumulated {strategy}"], at_once) < 1e-6
    assert distance(one["accumulated replicate"], at_once) < 1e-6


@pytest.mark.parametrize(
    ("world", "here", "split"),
    [
        (8, 4, (2, 4)),  # two nodes of four
        (6, 2, (3, 2)),
        (4, 4, (2, 2)),  # one node: cut in two
        (4, 1, (2, 2)),  # four nodes of one process each
        (9, 9, (3, 3)),
        (1, 1, None),
        (2, 2, None),
        (3, 3, None),
        (5, 5, None),
    ],
)
def test_a_hybrid_is_split_by_nodes_or_into_equal_groups(
    world: int, here: int, split: tuple[int, int] | None
) -> None:
    assert split_of(world, here) == split
