"""Checkpoints made smaller without loss, where it pays: the bytes of a float sorted by their place.

The sign and the exponent of neighbouring floats are alike and the mantissa is noise: sorted into
four planes (all first bytes, all second ones, ...), the one that compresses is compressed and the
others are kept as they are. zlib over the whole would take three times as long for less.
"""

import io
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import IO, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed.checkpoint._extension import StreamTransformExtension
from torch.distributed.tensor import DTensor

PAYS_BELOW = 0.9
"""Bytes kept for each byte of the sample: above it, a checkpoint is written as it is."""
SAMPLE = 1 << 20
_BLOCK = 1 << 20
_FLOAT = 4
_HEAD = struct.Struct("<I4I")
"""Bytes of a block, and of each of its planes as stored; a plane of full length is raw."""


class Planes(StreamTransformExtension):
    """Torch's distributed checkpoint writes each tensor through it, and reads it back."""

    @staticmethod
    def registry_name() -> str:
        return "stream.planes"

    @staticmethod
    def from_descriptor(version: str) -> "Planes":
        if version != "1":
            raise ValueError(f"Version {version} of compressed checkpoints is not known here.")
        return Planes()

    def get_descriptor(self) -> str:
        return f"{self.registry_name()}/1"

    def transform_to(self, output: IO[bytes]) -> IO[bytes]:
        return cast(IO[bytes], _Packing(output))

    def transform_from(self, input: IO[bytes]) -> IO[bytes]:
        return io.BytesIO(b"".join(_unpacked(input)))


class _Packing(io.RawIOBase):
    """Gathers what is written into blocks; the last one is written when it is closed."""

    def __init__(self, output: IO[bytes]) -> None:
        self._output = output
        self._waiting = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._waiting += data
        while len(self._waiting) >= _BLOCK:
            block = bytes(self._waiting[:_BLOCK])
            del self._waiting[:_BLOCK]
            self._output.write(pack(block))
        return memoryview(data).nbytes

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._waiting:
                self._output.write(pack(bytes(self._waiting)))
                self._waiting.clear()
            self._output.close()
        finally:
            super().close()


def pack(block: bytes) -> bytes:
    """A block by its planes, each as short as it gets; the bytes past the last float follow."""
    whole = len(block) // _FLOAT * _FLOAT
    planes = np.frombuffer(block, np.uint8, whole).reshape(-1, _FLOAT).T
    packed = [_shorter(np.ascontiguousarray(plane)) for plane in planes]
    head = _HEAD.pack(len(block), *(len(plane) for plane in packed))
    return b"".join((head, *packed, block[whole:]))


def _shorter(plane: NDArray[np.uint8]) -> bytes:
    """Compressed where a sample from all over it says that this is worth the time."""
    raw = plane.tobytes()
    sample = raw[:: max(1, len(raw) >> 13)]
    if len(zlib.compress(sample, 1)) > PAYS_BELOW * len(sample):
        return raw
    packed = zlib.compress(raw, 1)
    return packed if len(packed) < len(raw) else raw


def _unpacked(stream: IO[bytes]) -> Iterator[bytes]:
    while head := stream.read(_HEAD.size):
        size, *lengths = _HEAD.unpack(head)
        floats = size // _FLOAT
        planes = np.empty((floats, _FLOAT), np.uint8)
        for place, length in enumerate(lengths):
            data = stream.read(length)
            planes[:, place] = np.frombuffer(
                data if length == floats else zlib.decompress(data), np.uint8
            )
        yield planes.tobytes() + stream.read(size - floats * _FLOAT)


def whole_size(state: object) -> int:
    """Bytes of a nested state over all ranks: a share counts as the tensor that it is of."""
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(state))


def pays(state: object) -> bool:
    """Whether the first megabyte of a state on the CPU gets shorter by a tenth."""
    sample = bytearray()
    for tensor in _tensors(state):
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        flat = local.detach().flatten()[: SAMPLE // local.element_size()]
        sample += flat.contiguous().view(torch.uint8).numpy().tobytes()
        if len(sample) >= SAMPLE:
            break
    sample = sample[:SAMPLE]
    return len(pack(bytes(sample))) < PAYS_BELOW * len(sample)


def _tensors(state: object) -> Iterator[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, Mapping):
        for inner in state.values():
            yield from _tensors(inner)
    elif isinstance(state, list | tuple):
        for inner in state:
            yield from _tensors(inner)
