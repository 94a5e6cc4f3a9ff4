"""Prepares each block of a network before it is spread: compiled, recomputed."""

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
_MOST_SHAPES = 64
"""Shapes of a batch: a whole one, the last of an epoch, those of the validation."""


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


def compile_blocks(network: Network) -> None:
    """Compile the pass of each block; equal blocks share what is made of one.

    Every shape gets a kernel of its own: a resume, which has not seen the same shapes before it,
    computes the same bits.

    Raises:
        BadRequest: there is no C++ compiler.
    """
    # a second to load, for those who ask
    from torch._dynamo import config as dynamo
    from torch._inductor import config as inductor
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise BadRequest(
            "training.compile takes a C++ compiler, and there is none here (CXX, g++, clang++):"
            " install one where it trains, or remove training.compile."
        ) from error
    inductor.compile_threads = 1  # no processes of its own
    dynamo.recompile_limit = _MOST_SHAPES
    dynamo.fail_on_recompile_limit_hit = True  # else it goes on with other bits
    for block in network.units():
        block.forward = torch.compile(block.forward, dynamic=False)


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
