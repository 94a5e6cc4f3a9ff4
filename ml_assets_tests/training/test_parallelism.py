"""What a language model holds, sends and shares: fields that leave its numbers as they are."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from ml_assets.spec.canonical import canonical_json
from ml_assets.spec.program import Ref
from ml_assets.training.distributed.blocks import recompute
from ml_assets.training.models.gpt import GptNetwork
from ml_assets.training.models.network import Network
from ml_assets.training.stop import BadRequest
from ml_assets_tests.training.conftest import Sessions
from ml_assets_tests.training.gpt_cases import MEMORY, held_bytes
from ml_assets_tests.training.texts import MODEL, SPEC, text_set

pytest.importorskip("tokenizers", reason="the extra 'language' is not installed")
Taken = dict[str, list[list[str]]]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Ref:
    return text_set(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, texts: Ref) -> Taken:
    """The first steps of every case on two processes."""
    return steps_taken(tmp_path_factory.mktemp("two"), texts, 2)


def steps_taken(folder: Path, data: Ref, processes: int) -> Taken:
    attempt = Sessions(folder, data).attempt("cases", spec=SPEC, model=MODEL)
    request, out = folder / "request.json", folder / "out.json"
    request.write_bytes(canonical_json(attempt.request))
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    program = ["-m", "ml_assets_tests.training.gpt_cases", str(request), str(out)]
    command = [sys.executable, *torchrun, *program]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    return json.loads(out.read_text())


@pytest.mark.parametrize("strategy", ["replicate", "shard"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("mode", [mode for mode in MEMORY if mode != "none"])
def test_what_is_computed_again_changes_no_bit(
    two: Taken, strategy: str, precision: str, mode: str
) -> None:
    case = f"{strategy} {precision}"
    assert two[f"{case} {mode}"] == two[f"{case} none"]


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


def test_a_network_without_blocks_has_nothing_to_compute_again() -> None:
    class Flat(Network):
        def units(self) -> list[nn.Module]:
            return []

    with pytest.raises(BadRequest, match=r"this network has none: remove it, or put its blocks"):
        recompute(Flat(), "block")
