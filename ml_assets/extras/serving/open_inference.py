"""The Open Inference Protocol, version 2, over HTTP: tensors in, tensors out, by JSON or as bytes.

A tensor is a column: one input for each column that the model reads, [rows] or [rows, 1]. Numbers
are FP64 (others are converted), words BYTES; a null of JSON or a NaN is no value. The extension for
binary tensors is supported, because clients use it without asking.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ml_assets.assets.released_model.handover import tensors
from ml_assets.errors import RowsRefused, counted, quoted
from ml_assets.spec.documents import DocumentError, read_json
from ml_assets.spec.training_program import ModelManifest

HEADER_LENGTH = "inference-header-content-length"
EXTENSIONS = ("binary_tensor_data",)
Outputs = Mapping[str, NDArray[np.float64] | list[str]]
_TYPES = {
    **{"BOOL": "?", "FP16": "f2", "FP32": "f4", "FP64": "f8"},
    **{f"INT{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": f"u{bits // 8}" for bits in (8, 16, 32, 64)},
}
"""Datatype -> what it is in numpy; its bytes come little end first."""
_LENGTH_BYTES = 4
"""Bytes of the length before a word of BYTES, little end first."""


@dataclass(frozen=True)
class Wanted:
    """An output that is asked for."""

    name: str
    binary: bool


@dataclass(frozen=True)
class Inference:
    """A request for predictions, read."""

    id: str | None
    columns: Mapping[str, Sequence[object]]
    rows: int
    wanted: tuple[Wanted, ...]
    """None named: every output."""
    binary: bool
    """Outputs that are not named one by one come as bytes."""


def read_inference(body: bytes, header_length: str | None) -> Inference:
    """A request of the protocol.

    Args:
        header_length: bytes of the JSON before the binary tensors; None: all of it is JSON.

    Raises:
        RowsRefused: it is no such request; says where.
    """
    head, rest = _cut(body, header_length)
    asked = read_document(head)
    if not isinstance(asked, dict) or not isinstance(asked.get("inputs"), list):
        raise RowsRefused("The request has to be an object with a list of 'inputs'.")
    columns: dict[str, Sequence[object]] = {}
    for tensor in asked["inputs"]:
        name, values, rest = _read_tensor(tensor, rest)
        if name in columns:
            raise RowsRefused(f"The input {quoted(name)} is there twice.")
        columns[name] = values
    if rest:
        raise RowsRefused(f"{len(rest)} bytes follow the last binary input.")
    if not columns:
        raise RowsRefused("The list of inputs is empty: send one for each column.")
    counts = {len(values): name for name, values in columns.items()}
    if len(counts) > 1 or 0 in counts:
        seen = ", ".join(f"{quoted(name)} has {count}" for count, name in counts.items())
        raise RowsRefused(f"All inputs need the same number of rows, one or more; {seen}.")
    parameters, wanted = asked.get("parameters"), asked.get("outputs")
    wanted = [] if wanted is None else wanted
    name = asked.get("id")
    if not isinstance(wanted, list) or not isinstance(name, str | None):
        raise RowsRefused("'outputs' has to be a list, and 'id' a text.")
    default = isinstance(parameters, dict) and parameters.get("binary_data_output") is True
    named = tuple(_wanted(output, default) for output in wanted)
    if len({one.name for one in named}) < len(named):
        raise RowsRefused("An output is named twice in 'outputs': name each once.")
    return Inference(name, columns, next(iter(counts)), named, default)


def read_document(body: bytes) -> Any:
    """The values of a request in JSON.

    Raises:
        RowsRefused: it is none.
    """
    try:
        return read_json(body.decode())
    except (DocumentError, ValueError) as error:  # a number of 5000 digits is a ValueError
        raise RowsRefused(f"The request is not JSON: {quoted(error)}.") from error


def write_inference(
    inference: Inference,
    name: str,
    version: str,
    found: Outputs,
    parameters: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[bytes, int | None]:
    """The answer, and the length of its JSON where binary tensors follow.

    Args:
        parameters: what the answer says beside its outputs.

    Raises:
        RowsRefused: an output is asked for that there is not.
    """
    wanted = inference.wanted or tuple(Wanted(one, inference.binary) for one in found)
    outputs: list[dict[str, Any]] = []
    raw: list[bytes] = []
    for one in wanted:
        if one.name not in found:
            raise RowsRefused(f"There is no output {quoted(one.name)}; there are {list(found)}.")
        values = found[one.name]
        tensor = {"name": one.name, "datatype": _datatype(values), "shape": [inference.rows]}
        if one.binary:
            raw.append(_bytes(values))
            outputs.append({**tensor, "parameters": {"binary_data_size": len(raw[-1])}})
        else:
            outputs.append({**tensor, "data": _plain(values)})
    answer: dict[str, Any] = {"model_name": name, "model_version": version, "outputs": outputs}
    if parameters:
        answer["parameters"] = dict(parameters)
    if inference.id is not None:
        answer["id"] = inference.id
    head = json.dumps(answer).encode()
    return head + b"".join(raw), len(head) if raw else None


def model_metadata(name: str, versions: Sequence[str], manifest: ModelManifest) -> dict[str, Any]:
    """Return what the protocol says of a model: its inputs and outputs."""
    inputs, outputs = tensors(manifest)
    return {
        "name": name,
        "versions": list(versions),
        "platform": f"ml_assets_{manifest.model.family}",
        "inputs": [{**one.model_dump(), "shape": [-1]} for one in inputs],
        "outputs": [{**one.model_dump(), "shape": [-1]} for one in outputs],
    }


def _cut(body: bytes, header_length: str | None) -> tuple[bytes, bytes]:
    if header_length is None:
        return body, b""
    if not re.fullmatch(r"[0-9]{1,20}", header_length):
        raise RowsRefused(f"Inference-Header-Content-Length is {quoted(header_length)}: no number.")
    length = int(header_length)
    if length > len(body):
        raise RowsRefused(f"The JSON should have {length} bytes, the request has {len(body)}.")
    return body[:length], body[length:]


def _read_tensor(tensor: Any, rest: bytes) -> tuple[str, Sequence[object], bytes]:
    """Name and values of an input, and the bytes behind it."""
    if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
        raise RowsRefused("Each input has to be an object with a 'name'.")
    name, datatype = tensor["name"], tensor.get("datatype")
    if not isinstance(datatype, str) or datatype not in ("BYTES", *_TYPES):
        raise RowsRefused(
            f"The input {quoted(name)} has the datatype {quoted(datatype)}; expected BYTES or one"
            f" of {', '.join(_TYPES)}."
        )
    parameters = tensor.get("parameters")
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    if size is None:
        values = _flat(name, tensor.get("data"))
    elif type(size) is int and 0 <= size <= len(rest):
        values, rest = _of_bytes(name, datatype, rest[:size]), rest[size:]
    else:
        raise RowsRefused(
            f"The input {quoted(name)} names {quoted(size)} bytes, which are not there."
        )
    _require_kind(name, datatype, values)
    if datatype == "BOOL":
        values = [int(value) if isinstance(value, bool) else value for value in values]
    shape = tensor.get("shape")
    whole = isinstance(shape, list) and all(type(number) is int for number in shape)
    if not whole or shape not in ([len(values)], [len(values), 1]):
        raise RowsRefused(
            f"The input {quoted(name)} has {counted(len(values), 'value')} and the shape"
            f" {quoted(shape)}; expected [rows] or [rows, 1]."
        )
    return name, values, rest


def _flat(name: str, data: Any) -> list[object]:
    if not isinstance(data, list):
        raise RowsRefused(f"The input {quoted(name)} has no list of 'data'.")
    if all(isinstance(value, list) and len(value) == 1 for value in data):
        return [value[0] for value in data]
    return data


def _require_kind(name: str, datatype: str, values: Sequence[object]) -> None:
    """Refuse values that are not of the datatype."""
    known, expected, least, most = {int, float}, "a number", -math.inf, math.inf
    if datatype == "BYTES":
        known, expected = {str}, "a text"
    elif datatype == "BOOL":
        known, expected = {bool}, "true or false"
    elif not datatype.startswith("FP"):
        least, most = np.iinfo(_TYPES[datatype]).min, np.iinfo(_TYPES[datatype]).max
        known, expected = {int}, f"a whole number from {least:,} to {most:,}"
    for row, value in enumerate(values):
        inside = not isinstance(value, int) or least <= value <= most
        if value is None or (type(value) in known and inside):
            continue
        raise RowsRefused(
            f"The input {quoted(name)} is {datatype}, and its row {row} is"
            f" {quoted(f'{value!s:.60}')}; expected {expected}, or null."
        )


def _of_bytes(name: str, datatype: str, raw: bytes) -> list[object]:
    if datatype != "BYTES":
        kind = np.dtype(_TYPES[datatype]).newbyteorder("<")
        if len(raw) % kind.itemsize:
            raise RowsRefused(f"The input {quoted(name)} is not complete: {len(raw)} bytes.")
        return np.frombuffer(raw, kind).tolist()
    words: list[object] = []
    place = 0
    while place < len(raw):
        begins = place + _LENGTH_BYTES
        place = begins + int.from_bytes(raw[place:begins], "little")
        if place > len(raw):
            raise RowsRefused(
                f"The input {quoted(name)} is not complete: its last word is cut off."
            )
        try:
            words.append(raw[begins:place].decode())
        except UnicodeDecodeError as error:
            raise RowsRefused(f"The input {quoted(name)} is not a list of UTF-8 words.") from error
    return words


def _wanted(output: Any, default: bool) -> Wanted:
    if not isinstance(output, dict) or not isinstance(output.get("name"), str):
        raise RowsRefused("Each output has to be an object with a 'name'.")
    parameters = output.get("parameters")
    asked = parameters.get("binary_data") if isinstance(parameters, dict) else None
    return Wanted(output["name"], default if asked is None else asked is True)


def _datatype(values: NDArray[np.float64] | list[str]) -> str:
    return "BYTES" if isinstance(values, list) else "FP64"


def _plain(values: NDArray[np.float64] | list[str]) -> list[Any]:
    return values if isinstance(values, list) else values.tolist()


def _bytes(values: NDArray[np.float64] | list[str]) -> bytes:
    if not isinstance(values, list):
        return np.ascontiguousarray(values, dtype="<f8").tobytes()
    words = (word.encode() for word in values)
    return b"".join(len(word).to_bytes(_LENGTH_BYTES, "little") + word for word in words)
