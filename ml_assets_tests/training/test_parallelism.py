"""What a language model holds, sends and shares: fields that leave its numbers as they are."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ml_assets.spec.base import canonical_json
from ml_assets.spec.parallel import NOT_THERE, Parallel
from ml_assets.spec.training_program import Ref
from ml_assets.training.distributed.blocks import recompute
from ml_assets.training.models.gpt import GptNetwork
from ml_assets.training.models.layers import Masks
from ml_assets.training.models.network import Network
from ml_assets.training.models.team import RowDropout
from ml_assets.training.stop import BadRequest
from ml_assets_tests.training.conftest import Sessions
from ml_assets_tests.training.gpt_cases import MEMORY, held_bytes
from ml_assets_tests.training.test_exactness import left_at
from ml_assets_tests.training.test_strategies import distance
from ml_assets_tests.training.texts import MODEL, SPEC, text_set

pytest.importorskip("tokenizers", reason="the extra 'language' is not installed")
Taken = dict[str, dict[str, Any]]
PAGE = Path(__file__).parents[2] / "docs" / "language-model.md"


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Ref:
    return text_set(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, texts: Ref) -> dict[str, Any]:
    """Twenty steps of one process."""
    return steps_taken(tmp_path_factory.mktemp("one"), texts, 1, "alone")["alone"]


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory, texts: Ref) -> Taken:
    """The same of two, which hold and send less."""
    return steps_taken(tmp_path_factory.mktemp("two"), texts, 2, "memory")


@pytest.fixture(scope="module")
def tensor(tmp_path_factory: pytest.TempPathFactory, texts: Ref) -> Taken:
    """The same of four: two shards, each shared by two."""
    return steps_taken(tmp_path_factory.mktemp("four"), texts, 4, "tensor")


def steps_taken(folder: Path, data: Ref, processes: int, group: str) -> Taken:
    attempt = Sessions(folder, data).attempt("cases", spec=SPEC, model=MODEL)
    request, out = folder / "request.json", folder / "out.json"
    request.write_bytes(canonical_json(attempt.request))
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    torchrun.append(f"--log-dir={folder / 'ranks'}")
    program = ["-m", "ml_assets_tests.training.gpt_cases", str(request), str(out), group]
    command = [sys.executable, *(torchrun if processes > 1 else []), *program]
    done = subprocess.run(command, timeout=600, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(out.read_text())


@pytest.mark.parametrize("strategy", ["replicate", "shard"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("mode", [mode for mode in MEMORY if mode != "none"])
def test_what_is_computed_again_changes_no_bit(
    memory: Taken, strategy: str, precision: str, mode: str
) -> None:
    case = f"{strategy} {precision}"
    assert memory[f"{case} {mode}"]["steps"] == memory[f"{case} none"]["steps"]


@pytest.mark.parametrize("strategy", ["replicate", "shard"])
def test_gradients_that_are_sent_in_bf16_are_rounded_and_near(memory: Taken, strategy: str) -> None:
    assert 0 < distance(memory[f"{strategy} sums"], memory[f"{strategy} fp32 none"]) < 0.05
    assert distance(memory["replicate sums"], memory["shard sums"]) < 1e-5
    assert memory[f"{strategy} sums"]["resumed"] == memory[f"{strategy} sums"]["steps"][10:]


def test_a_mesh_of_two_by_two_comes_to_the_losses_of_one_process(
    alone: dict[str, Any], tensor: Taken
) -> None:
    assert distance(tensor["fp32 none"], alone) < 1e-5
    assert tensor["fp32 none"]["shapes"] == alone["shapes"]


def test_with_tensors_parted_it_resumes_bit_for_bit_in_any_precision(tensor: Taken) -> None:
    for name, case in tensor.items():
        assert case["resumed"] == case["steps"][10:], name
        assert case["steps"] == tensor[f"{name.split()[0]} none"]["steps"], name
    assert 0 < distance(tensor["bf16 none"], tensor["fp32 none"]) < 0.1


@pytest.mark.parametrize(
    ("first", "then"), [((2, 4), (1, 2)), pytest.param((1, 2), (2, 2), marks=pytest.mark.daemon)]
)
def test_a_checkpoint_goes_from_parted_tensors_to_whole_ones_and_back(
    texts: Ref, tmp_path: Path, first: tuple[int, int], then: tuple[int, int]
) -> None:
    """(tensor, processes) of the first attempt, and of the one that goes on."""
    sessions = Sessions(tmp_path, texts)
    spec = SPEC.model_copy(update={"keep_last": 100})
    of = {t: spec.model_copy(update={"parallel": Parallel(tensor=t)}) for t in (1, 2)}
    begun = sessions.attempt("s", procs=first[1], spec=of[first[0]], model=MODEL)
    assert begun.run() == 0
    whole = begun.validation_losses()
    resume = left_at(begun, 10)
    more = sessions.attempt(
        "s", number=2, procs=then[1], spec=of[then[0]], model=MODEL, resume=resume
    )
    assert more.run() == 0
    found = more.validation_losses()
    assert min(found) == 15 and max(found) == max(whole)
    assert max(abs(found[step] - whole[step]) for step in found) < 1e-5


@pytest.mark.daemon
def test_a_compiled_block_comes_near_and_a_new_process_goes_on_with_the_same_bits(
    texts: Ref, tmp_path: Path
) -> None:
    """One block, one process: a compiler takes its time."""
    block = MODEL.model_copy(update={"depth": 1})
    few: dict[str, Any] = {"max_steps": 4, "evaluate_every": 2, "processes": 1, "keep_last": 9}
    few["strategy"] = "replicate"
    spec = SPEC.model_copy(update={**few, "compile": True})
    sessions = Sessions(tmp_path, texts)
    whole = sessions.attempt("whole", procs=1, spec=spec, model=block)
    assert whole.start().wait(600) == 0, whole.events()[-1]
    plain = sessions.attempt("plain", procs=1, spec=SPEC.model_copy(update=few), model=block)
    plain.run_here()
    near = [(a, plain.validation_losses()[n]) for n, a in whole.validation_losses().items()]
    assert len(near) == 2 and max(abs(a - b) for a, b in near) < 1e-4
    assert whole.weights() != plain.weights()
    weights, resume = whole.weights(), left_at(whole, 2)
    again = sessions.attempt("whole", number=2, procs=1, spec=spec, model=block, resume=resume)
    assert again.start().wait(600) == 0, again.events()[-1]
    assert min(again.validation_losses()) == 4
    assert again.weights() == weights


def test_blocks_hold_less_the_more_they_compute_again() -> None:
    held: list[int] = []
    for mode in MEMORY:
        torch.manual_seed(0)
        network = GptNetwork(MODEL, 70)
        recompute(network, mode)
        held.append(held_bytes(network, torch.randint(0, 70, (8, 65), dtype=torch.int32)))
    none, block, selective = held
    assert block < 0.3 * none
    assert block < selective < 0.7 * none


def test_what_is_dropped_in_a_block_is_dropped_again() -> None:
    class Dropping(Network):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.drops = [RowDropout(0.5, number) for number in range(2)]
            blocks = [nn.Sequential(nn.Linear(8, 8), nn.ReLU(), drop) for drop in self.drops]
            self.blocks = nn.ModuleList(blocks)

        def forward(
            self, numeric: torch.Tensor, categorical: torch.Tensor, masks: Masks | None
        ) -> torch.Tensor:
            for drop in self.drops:
                drop.masks = masks
            for block in self.blocks:
                numeric = block(numeric)
            return numeric

        def units(self) -> list[nn.Module]:
            return list(self.blocks)

    found: list[torch.Tensor] = []
    for mode in MEMORY:
        network = Dropping()
        recompute(network, mode)
        x = torch.linspace(-1, 1, 32).view(4, 8)
        network(x, torch.zeros(4, 0), Masks((3,), (4,))).sum().backward()
        found += [torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])]
    assert all(torch.equal(one, found[0]) for one in found)
    assert bool(found[0].any())


def test_the_page_names_what_is_not_there() -> None:
    page = " ".join(PAGE.read_text().replace("`", "").split())
    for name, said in NOT_THERE.items():
        assert name in page or said == "it is called shard here"


def test_a_network_without_blocks_has_nothing_to_compute_again() -> None:
    class Flat(Network):
        def units(self) -> list[nn.Module]:
            return []

    with pytest.raises(BadRequest, match=r"this network has none: remove it, or put its blocks"):
        recompute(Flat(), "block")
