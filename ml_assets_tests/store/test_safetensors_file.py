"""A file of weights is exactly a safetensors file, or it is refused without being read further."""

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ml_assets.errors import StorageError
from ml_assets.store.safetensors_file import MOST_HEADER_BYTES, check_safetensors


def written(file: Path, header: object, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return file


def tensor(begin: int, end: int, shape: object = None, dtype: object = "F32") -> dict[str, object]:
    shape = [(end - begin) // 4] if shape is None else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "weights.safetensors"


def test_what_safetensors_writes_is_taken(file: Path) -> None:
    kinds = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float16, torch.uint8)
    tensors = {f"t{n}": torch.zeros(3, 2, dtype=kind) for n, kind in enumerate(kinds)}
    tensors |= {"scalar": torch.tensor(1.0), "empty": torch.zeros(0, 4)}
    save_file(tensors, file, metadata={"format": "pt"})
    check_safetensors(file)
    assert load_file(file).keys() == tensors.keys()


HUGE = 2**62
BAD = [
    ({"a": tensor(0, HUGE)}, "bytes, 8 are there"),
    ({"a": tensor(-4, 4)}, "offsets of the tensor 'a' are not valid"),
    ({"a": tensor(4, 0, [1])}, "offsets of the tensor 'a' are not valid"),
    ({"a": tensor(0, 8, [HUGE, HUGE])}, "claims"),
    ({"a": tensor(0, 8, [-2])}, "shape of the tensor 'a' is not valid"),
    ({"a": tensor(0, 8, [True, 2])}, "shape of the tensor 'a' is not valid"),
    ({"a": tensor(0, 8, [1] * 17)}, "shape of the tensor 'a' is not valid"),
    ({"a": tensor(0, 8, "2")}, "shape of the tensor 'a' is not valid"),
    ({"a": tensor(0, 8), "b": tensor(4, 8)}, "tensor 'b' overlaps"),
    ({"a": tensor(0, 4)}, "4 bytes, 8 are there"),
    ({"a": tensor(4, 8)}, "leaves a gap"),
    ({"a": tensor(0, 8, dtype="object")}, "unknown type 'object'"),
    ({"a": tensor(0, 8, dtype=["F32"])}, "unknown type"),
    ({"a": {**tensor(0, 8), "code": "x"}}, "is not described by"),
    ({"a": [0, 8]}, "is not described by"),
    ({"__metadata__": {"a": 1}, "a": tensor(0, 8)}, "is not text by name"),
    ([1], "not a JSON object"),
    (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,Infinity]}}', "holds Infinity"),
    (b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,8]}}', "holds NaN"),
    (b'{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}', "holds 2.0"),
    (b'{"a":1,"a":2}', "key 'a' twice"),
    (b'{"a":{"dtype":"F32","dtype":"I8","shape":[2],"data_offsets":[0,8]}}', "'dtype' twice"),
    (b'{"a":' * 100_000, "not JSON"),
    (b'{"a":' + b"9" * 5000 + b"}", "not JSON"),
    (b"\xff{}", "not a JSON object"),
]


@pytest.mark.parametrize(("header", "said"), BAD, ids=[said for _, said in BAD])
def test_a_header_that_lies_is_refused(file: Path, header: object, said: str) -> None:
    with pytest.raises(StorageError, match="not a complete safetensors file") as refused:
        check_safetensors(written(file, header, bytes(8)))
    assert said in str(refused.value)


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, MOST_HEADER_BYTES + 1, 9])
def test_a_header_longer_than_the_file_is_not_even_asked_memory_for(
    file: Path, length: int
) -> None:
    file.write_bytes(struct.pack("<Q", length) + b"{}      ")
    with pytest.raises(StorageError, match=f"claims {length:,} bytes"):
        check_safetensors(file)


class Bomb:
    def __init__(self, touched: Path) -> None:
        self.touched = str(touched)

    def __reduce__(self):
        return Path.touch, (Path(self.touched),)


@pytest.mark.parametrize("kind", ["pickle", "torch", "zip", "npy", "empty", "truncated"])
def test_another_kind_of_file_is_refused_and_nothing_in_it_runs(
    tmp_path: Path, file: Path, kind: str
) -> None:
    touched = tmp_path / "touched"
    buffer = io.BytesIO()
    if kind == "pickle":
        pickle.dump(Bomb(touched), buffer)
    elif kind == "torch":
        torch.save({"weights": Bomb(touched)}, buffer)
    elif kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("weights", bytes(100_000_000))
    elif kind == "npy":
        np.save(buffer, np.array([Bomb(touched)], dtype=object), allow_pickle=True)
    elif kind == "truncated":
        buffer.write(b"\x01\x00")
    file.write_bytes(buffer.getvalue())
    with pytest.raises(StorageError, match="not a complete safetensors file"):
        check_safetensors(file)
    assert not touched.exists()
