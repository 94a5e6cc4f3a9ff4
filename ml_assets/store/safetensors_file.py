"""Checks from its header that a file is exactly a safetensors file, without loading it.

The format: https://github.com/huggingface/safetensors#format. Stricter than its own reader where
that leaves a choice: no key twice, no gap, nothing behind the last tensor.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from ml_assets.errors import StorageError

_LENGTH = 8
MOST_HEADER_BYTES = 100_000_000
"""The limit of the format's own reader."""
_MOST_AXES = 16
_BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64"), 64),
}
_FIELDS = {"dtype", "shape", "data_offsets"}
_REMEDY = "Nothing of it was used; write it again with safetensors."


def check_safetensors(file: Path) -> None:
    """Hold a file to the format.

    Raises:
        StorageError: it is something else, or claims what it does not hold.
    """
    try:
        with file.open("rb") as handle:
            read_header(file, handle)
    except OSError as error:
        raise StorageError(f"{file} cannot be read: {error.strerror}.") from error


def read_header(file: Path, handle: BinaryIO) -> tuple[bytes, Mapping[str, Mapping[str, Any]]]:
    """Return what a file begins with, as it is read: its bytes, and name -> tensor in the order of
    their bytes, which follow without a gap.

    Args:
        handle: of the file, at its beginning; it stands behind the header then.

    Raises:
        StorageError: it is something else, or claims what it does not hold.
    """
    size = os.fstat(handle.fileno()).st_size
    begin = _whole(file, handle.read(_LENGTH), _LENGTH)
    length = int.from_bytes(begin, "little")
    if length > min(MOST_HEADER_BYTES, size - _LENGTH):
        _refuse(file, f"its header claims {length:,} bytes, the file has {size:,}")
    header = _whole(file, handle.read(length), length)
    tensors = _parse(file, header)
    order = _check_tensors(file, tensors, size - _LENGTH - length)
    return begin + header, {name: tensors[name] for name in order}


def _parse(file: Path, header: bytes) -> dict[str, Any]:
    if not header.startswith(b"{"):
        _refuse(file, "its header is not a JSON object")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            _refuse(file, f"its header has the key {twice[:80]!r} twice")
        return dict(pairs)

    def no_number(text: str) -> NoReturn:
        _refuse(file, f"its header holds {text}, which is not a whole number")

    try:
        found = json.loads(
            header, object_pairs_hook=once, parse_constant=no_number, parse_float=no_number
        )
    except (ValueError, RecursionError) as error:
        raise StorageError(_said(file, "its header is not JSON")) from error
    if not isinstance(found, dict):
        _refuse(file, "its header is not a JSON object")
    return found


def _check_tensors(file: Path, header: dict[str, Any], data: int) -> list[str]:
    """Every tensor begins where the one before ended, and the last one ends with the file: their
    names in this order."""
    notes = header.pop("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(v, str) for v in notes.values()):
        _refuse(file, "its __metadata__ is not text by name")
    spans: list[tuple[int, int, str]] = []
    for name, tensor in header.items():
        begin, end, claimed = _span(file, name, tensor)
        if end - begin != claimed:
            _refuse(file, f"the tensor {name[:80]!r} claims {claimed:,} bytes in {end - begin:,}")
        spans.append((begin, end, name))
    last = 0
    for begin, end, name in sorted(spans):
        if begin != last:
            how = "overlaps the one before" if begin < last else "leaves a gap before it"
            _refuse(file, f"the tensor {name[:80]!r} {how}")
        last = end
    if last != data:
        _refuse(file, f"its tensors have {last:,} bytes, {data:,} are there")
    return [name for _, _, name in sorted(spans)]


def _span(file: Path, name: str, tensor: Any) -> tuple[int, int, int]:
    """Where a tensor begins and ends, and the bytes that its shape claims."""
    if not isinstance(tensor, dict) or tensor.keys() != _FIELDS:
        _refuse(file, f"the tensor {name[:80]!r} is not described by {sorted(_FIELDS)}")
    bits, shape, offsets = _BITS.get(str(tensor["dtype"])), tensor["shape"], tensor["data_offsets"]
    if bits is None:
        _refuse(file, f"the tensor {name[:80]!r} is of the unknown type {tensor['dtype']!r:.80}")
    if not _natural(shape) or len(shape) > _MOST_AXES:
        _refuse(file, f"the shape of the tensor {name[:80]!r} is not valid")
    if not _natural(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        _refuse(file, f"the offsets of the tensor {name[:80]!r} are not valid: {offsets!r:.80}")
    claimed = bits // 8
    for axis in shape:
        claimed *= axis
    return offsets[0], offsets[1], claimed


def _natural(numbers: Any) -> bool:
    """A list of whole numbers from zero up; a bool is none."""
    return isinstance(numbers, list) and all(type(n) is int and 0 <= n < 2**63 for n in numbers)


def _whole(file: Path, data: bytes, length: int) -> bytes:
    if len(data) != length:
        _refuse(file, f"it ends after {len(data):,} bytes of its beginning")
    return data


def _refuse(file: Path, why: str) -> NoReturn:
    raise StorageError(_said(file, why))


def _said(file: Path, why: str) -> str:
    return f"{file} is not a complete safetensors file: {why}. {_REMEDY}"
