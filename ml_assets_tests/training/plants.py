"""The training program with a fault in it: ``plants.py FAULT train --request ...``."""

import os
import sys
from typing import Any

import torch

from ml_assets.training.__main__ import run
from ml_assets.training.models import batch_norm
from ml_assets.training.models.mlp import MlpNetwork
from ml_assets.training.rows.batches import Batches

_WHOLE, _DRAWN = MlpNetwork.forward, Batches._drawn


def skips_a_branch(self: MlpNetwork, numeric: Any, categorical: Any, masks: Any) -> torch.Tensor:
    """Rank 1 goes round its second layer, as a branch that depends on the rows would."""
    if os.environ.get("RANK") != "1":
        return _WHOLE(self, numeric, categorical, masks)
    x = torch.cat([numeric, self.embeddings(categorical)], dim=1)
    return self.output(torch.relu(self.layers[0](x))).unsqueeze(1) + self.output_bias


def infinite_slope(self: MlpNetwork, numeric: Any, categorical: Any, masks: Any) -> torch.Tensor:
    """The loss stays finite; the derivative of a root at zero does not."""
    hidden = self.layers[0](torch.cat([numeric, self.embeddings(categorical)], dim=1))
    return _WHOLE(self, numeric, categorical, masks) + (0 * hidden[:, :1]).sqrt()[:, None]


class Unheard(BaseException):
    """As torch's ``CheckpointException``: no Exception."""


def raises_no_exception(*_: Any) -> torch.Tensor:
    """On every rank, in the midst of a group."""
    raise Unheard("a save that failed")


class Alone:
    """In place of ``torch.distributed``, for the running statistics: each rank has its own."""

    @staticmethod
    def get_world_size() -> int:
        """One, whatever it is."""
        return 1


def draws_a_row_twice(batches: Batches, places: Any, epoch: int) -> Any:
    """Row 7 comes where row 3 is due."""
    numbers = _DRAWN(batches, places, epoch)
    numbers[numbers == 3] = 7
    return numbers


if __name__ == "__main__":
    fault = globals()[sys.argv.pop(1)]
    if fault is Alone:
        batch_norm.dist = fault
    elif fault is draws_a_row_twice:
        Batches._drawn = fault
    else:
        MlpNetwork.forward = fault
    run()
