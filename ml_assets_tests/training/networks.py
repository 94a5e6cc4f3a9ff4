"""Networks of a team's own, as text: a sound one, and one for each fault that conformance names."""

from pathlib import Path

from ml_assets.spec.network_code import NetworkCode, read_network
from ml_assets.spec.training import Module

CONVOLUTION = '''\
"""A small convolution over the columns, each embedded in a few channels."""

import torch
from torch import nn

from blocks import Block


class Convolution(nn.Module):
    """The columns as a sequence."""

    def __init__(self, columns, channels: int, depth: int) -> None:
        super().__init__()
        self.numeric = nn.Parameter(torch.randn(len(columns.numeric), channels) * 0.1)
        self.tables = nn.ModuleList(nn.Embedding(n, channels) for n in columns.cardinalities)
        self.blocks = nn.ModuleList(Block(channels) for _ in range(depth))
        self.last = nn.Linear(channels, columns.outputs, bias=False)

    def forward(self, numeric: torch.Tensor, categorical: torch.Tensor) -> torch.Tensor:
        words = [table(categorical[:, n])[:, None] for n, table in enumerate(self.tables)]
        x = torch.cat([numeric[:, :, None] * self.numeric, *words], dim=1)
        for block in self.blocks:
            x = block(x)
        return self.last(x.mean(dim=1))


def build(config, columns):
    return Convolution(columns, **config)


def huber(logits, label):
    wrong = torch.sigmoid(logits[..., 0]) - label[:, None]
    return nn.functional.huber_loss(wrong, torch.zeros_like(wrong), reduction="none").mean(1)


def shifted(numeric, categorical, generator):
    return numeric + torch.rand(len(numeric), 1, generator=generator), categorical


def short(numeric, categorical, generator):
    return numeric[1:], categorical


def groups(network):
    tables = [p for name, p in network.named_parameters() if name.startswith("tables")]
    rest = [p for name, p in network.named_parameters() if not name.startswith("tables")]
    return [{"params": tables, "learning_rate": 0.0}, {"params": rest, "weight_decay": 0.01}]
'''
BLOCKS = '''\
"""Blocks."""

import torch
from torch import nn

NEVER = 1


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(channels, channels, 3, padding=1)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, length, channels] -> the same."""
        mixed = self.convolution(x.transpose(1, 2)).transpose(1, 2)
        return x + self.drop(torch.relu(mixed))
'''
KEEPING = CONVOLUTION.replace(
    "        return self.last",
    "        self.__dict__.setdefault('kept', []).append(torch.ones(500_000))\n"
    "        return self.last",
)
"""Two megabytes more with each pass."""
NORMED = CONVOLUTION.replace(
    "        self.last =",
    "        self.image = nn.Conv2d(1, channels, 3, padding=1, bias=False)\n"
    "        self.norm = nn.BatchNorm2d(channels)\n"
    "        self.flat = nn.BatchNorm1d(channels)\n"
    "        self.last =",
).replace(
    "        return self.last(x.mean(dim=1))",
    "        x = x + torch.relu(self.norm(self.image(x[:, None]))).mean(dim=1)\n"
    "        return self.last(torch.relu(self.flat(x.mean(dim=1))))",
)
"""Batch norm of images [n, channels, length, channels], and of rows [n, channels]."""
DROPPED = CONVOLUTION.replace(
    "        self.last =",
    "        drop = nn.Dropout(0.2)\n"
    "        self.mixed = nn.Sequential(drop, nn.Linear(channels, channels), nn.ReLU(), drop)\n"
    "        self.last =",
).replace("self.last(x.mean(dim=1))", "self.last(self.mixed(x.mean(dim=1)))")
"""One dropout at two places."""
MODEL = Module(family="module", module="network.py:build", config={"channels": 8, "depth": 2})


def code(folder: Path, model: Module = MODEL, network: str = CONVOLUTION) -> NetworkCode:
    """The code of a network in a folder that is made for it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "network.py").write_text(network)
    (folder / "blocks.py").write_text(BLOCKS)
    return read_network(folder, model)
