"""What is done to each block of a network before it is spread: what it computes again."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.distributed._composable.checkpoint_activation import checkpoint
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from ml_assets.spec.parallel import ActivationCheckpointing
from ml_assets.training.models.network import Network
from ml_assets.training.stop import BadRequest

_Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]
_aten = torch.ops.aten
_KEPT = [
    _aten.mm.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten.convolution.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_cudnn_attention.default,
]
"""What takes long: ``selective`` computes only the rest again (norms, turns, activations)."""


def recompute(network: Network, mode: ActivationCheckpointing) -> None:
    """Let each block compute again, in the backward pass, what it would have held for it.

    The names of the network stay, and so does every bit: nothing in a pass is drawn by itself.

    Raises:
        BadRequest: the network has no blocks.
    """
    if mode == "none":
        return
    blocks = network.units()
    if not blocks:
        raise BadRequest(
            f"training.activation_checkpointing {mode!r} computes large items of lists again"
            " (nn.ModuleList, nn.Sequential; from a million parameters), and this network has none:"
            " remove it, or put its blocks into an nn.ModuleList."
        )
    for block in blocks:
        checkpoint(
            block,
            preserve_rng_state=False,
            context_fn=lambda block=block: _contexts(block, mode),
        )


def _contexts(block: nn.Module, mode: ActivationCheckpointing) -> _Contexts:
    """What to run the block in, and what to run it in again."""
    first, again = nullcontext(), nullcontext()
    if mode == "selective":
        first, again = create_selective_checkpoint_contexts(_KEPT)
    # in a lower precision copies stand in for the parameters, for as long as the first pass runs
    copies = {name: weight for name, weight in block.named_parameters() if not weight.is_leaf}
    return first, _with_copies(block, copies, again) if copies else again


@contextmanager
def _with_copies(
    block: nn.Module, copies: Mapping[str, torch.Tensor], inner: AbstractContextManager[Any]
) -> Iterator[None]:
    with _reparametrize_module(block, dict(copies)), inner:
        yield
