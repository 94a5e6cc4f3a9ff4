"""Compression is without loss, and is used where it pays."""

from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from ml_assets.training.checkpoints.compression import Planes, pack, pays
from ml_assets.training.checkpoints.read import read_into


def trained() -> dict[str, torch.Tensor]:
    """Weights, and an optimizer's two averages, as a training leaves them."""
    torch.manual_seed(0)
    table = torch.nn.Embedding(2000, 64)
    optimizer = torch.optim.AdamW(table.parameters())
    for _ in range(5):
        optimizer.zero_grad()
        table(torch.randint(0, 300, (64,))).square().sum().backward()
        optimizer.step()
    averages = optimizer.state[table.weight]
    return {"weight": table.weight.detach(), "m": averages["exp_avg"], "v": averages["exp_avg_sq"]}


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 4095, (1 << 20) - 1, 1 << 20, (2 << 20) + 7])
@pytest.mark.parametrize("kind", ["zeros", "noise", "floats"])
def test_what_is_packed_comes_back_byte_for_byte(tmp_path: Path, size: int, kind: str) -> None:
    noise = torch.randint(0, 256, (size,), dtype=torch.uint8)
    content = {
        "zeros": torch.zeros_like(noise),
        "noise": noise,
        "floats": torch.randn(size // 4 + 1).view(torch.uint8)[:size].clone(),
    }[kind]
    file = tmp_path / "stream"
    with file.open("wb") as output:
        packing = Planes().transform_to(output)
        for start in range(0, size, 100_003):
            packing.write(content[start : start + 100_003].numpy().tobytes())
        packing.close()
    with file.open("rb") as stored:
        assert Planes().transform_from(stored).read() == content.numpy().tobytes()


def test_a_state_in_training_pays_and_noise_does_not() -> None:
    state = trained()
    assert pays(state)
    assert not pays({"noise": torch.randint(0, 256, (1 << 20,), dtype=torch.uint8)})
    assert not pays({})


def test_torch_reads_a_compressed_checkpoint_back_to_the_same_bits(tmp_path: Path) -> None:
    state = trained()
    for name, extensions in (("plain", None), ("packed", [Planes()])):
        writer = FileSystemWriter(tmp_path / name, _extensions=extensions)
        save({"state": dict(state)}, storage_writer=writer, no_dist=True)
        found = {key: torch.full_like(tensor, -1) for key, tensor in state.items()}
        read_into({"state": found}, tmp_path / name, None)
        assert all(torch.equal(found[key], tensor) for key, tensor in state.items())
    plain, packed = (
        sum(file.stat().st_size for file in (tmp_path / name).glob("*.distcp"))
        for name in ("plain", "packed")
    )
    assert packed < 0.9 * plain


def test_a_plane_of_noise_is_kept_as_it_is() -> None:
    block = torch.randint(0, 256, (1 << 16,), dtype=torch.uint8).numpy().tobytes()
    assert len(pack(block)) == len(block) + 20
