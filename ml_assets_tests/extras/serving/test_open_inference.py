"""A request of the protocol is read as it was meant, or refused with the place of the mistake."""

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ml_assets.errors import RowsRefused
from ml_assets.extras.serving.open_inference import Wanted, read_inference, write_inference

FOUND = {"prediction": ["a", "bü"], "probability_a": np.array([0.9, 0.25])}


def tensor(name: str, datatype: str, data: object, **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [2], "data": data, **more}


def read(*inputs: object, **more: object) -> Any:
    return read_inference(json.dumps({"inputs": inputs, **more}).encode(), None)


def test_tensors_of_json_are_columns() -> None:
    asked = read(
        tensor("x", "FP64", [1.5, None]),
        tensor("w", "BYTES", [["u"], ["v"]], shape=[2, 1]),
        tensor("b", "BOOL", [True, None]),
        id="7",
        outputs=[{"name": "prediction"}],
    )
    assert asked.columns == {"x": [1.5, None], "w": ["u", "v"], "b": [1, None]}
    assert (asked.id, asked.rows, asked.wanted) == ("7", 2, (Wanted("prediction", False),))


def test_binary_tensors_follow_the_json_in_its_order() -> None:
    raw = [np.array([1.5, np.nan], "<f4").tobytes(), b"\1\0\0\0u\2\0\0\0" + "ü".encode()]
    inputs = [
        {"name": name, "datatype": datatype, "shape": [2], "parameters": {"binary_data_size": size}}
        for name, datatype, size in (("x", "FP32", 8), ("w", "BYTES", len(raw[1])))
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    asked = read_inference(head + b"".join(raw), str(len(head)))
    assert asked.columns["w"] == ["u", "ü"]
    first, second = asked.columns["x"]
    assert first == 1.5 and np.isnan(second)

    content, length = write_inference(asked, "m", "v", FOUND)
    assert length is not None
    answer = json.loads(content[:length])
    assert [one["datatype"] for one in answer["outputs"]] == ["BYTES", "FP64"]
    sizes = [one["parameters"]["binary_data_size"] for one in answer["outputs"]]
    assert sum(sizes) == len(content) - length
    assert np.frombuffer(content[-sizes[1] :]).tolist() == [0.9, 0.25]


def test_one_output_may_be_asked_for_and_no_other_one() -> None:
    asked = read(tensor("x", "FP64", [1, 2]), outputs=[{"name": "probability_a"}])
    content, length = write_inference(asked, "m", "v", FOUND)
    assert length is None
    (output,) = json.loads(content)["outputs"]
    assert output == {
        "name": "probability_a",
        "datatype": "FP64",
        "shape": [2],
        "data": [0.9, 0.25],
    }
    other = read(tensor("x", "FP64", [1, 2]), outputs=[{"name": "margin"}])
    with pytest.raises(RowsRefused, match="There is no output «margin»"):
        write_inference(other, "m", "v", FOUND)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([], "is empty"),
        ([3], "an object with a 'name'"),
        ([tensor("x", "FP8", [1, 2])], "the datatype «FP8»"),
        ([tensor("x", "FP64", 3)], "no list of 'data'"),
        ([tensor("x", "FP64", [1, 2, 3])], "3 values and the shape «[2]»"),
        ([tensor("x", "FP64", [1, 2]), tensor("x", "FP64", [1, 2])], "there twice"),
        (
            [tensor("x", "FP64", [1, 2]), tensor("y", "FP64", [1], shape=[1])],
            "«x» has 2, «y» has 1",
        ),
        ([tensor("x", "FP64", None, parameters={"binary_data_size": 16})], "not there"),
        ([tensor("x", "FP64", None, parameters={"binary_data_size": True})], "not there"),
        ([tensor("x", "FP64", [1, 2], shape=[2.0])], "the shape «[2.0]»"),
        ([tensor("x", "FP64", [1], shape=[True])], "the shape «[True]»"),
        ([tensor("x", "FP64", [1], shape=1)], "the shape «1»"),
        ([tensor("x", "INT64", [1, 0.5])], "row 1 is «0.5»; expected a whole number from -9,223"),
        ([tensor("x", "UINT8", [1, 256])], "«256»; expected a whole number from 0 to 255, or null"),
        ([tensor("x", "INT32", [1, True])], "row 1 is «True»"),
        ([tensor("x", "FP32", [1, "2"])], "row 1 is «2»; expected a number, or null"),
        ([tensor("x", "FP64", [[1, 2]], shape=[1])], "row 0 is «[1, 2]»"),
        ([tensor("x", "BYTES", ["u", 2])], "row 1 is «2»; expected a text, or null"),
        ([tensor("x", "BOOL", [True, 1])], "row 1 is «1»; expected true or false, or null"),
    ],
)
def test_each_mistake_is_named(inputs: list[object], said: str) -> None:
    with pytest.raises(RowsRefused) as refused:
        read(*inputs)
    assert said in str(refused.value)


@pytest.mark.parametrize("outputs", [{}, "prediction", [3], [{"name": 3}]])
def test_outputs_that_are_no_list_of_names_are_refused(outputs: object) -> None:
    with pytest.raises(RowsRefused, match=r"'outputs' has to be a list|with a 'name'"):
        read(tensor("x", "FP64", [1, 2]), outputs=outputs)


@pytest.mark.parametrize("length", ["-1", "x", "10000", "²"])
def test_a_length_that_is_none_is_refused(length: str) -> None:
    with pytest.raises(RowsRefused):
        read_inference(b'{"inputs": []}', length)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "datatype", "shape", "data", "parameters", "binary_data_size"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


tensors = st.fixed_dictionaries(
    {"name": st.text(max_size=2), "datatype": st.sampled_from(["FP64", "BYTES"]) | json_values},
    optional={
        "shape": st.just([1]) | json_values,
        "data": st.lists(json_values, max_size=2) | json_values,
        "parameters": json_values,
    },
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine
@given(
    inputs=st.lists(tensors, min_size=1, max_size=2) | json_values,
    more=st.fixed_dictionaries(
        {}, optional=dict.fromkeys(["outputs", "parameters", "id"], json_values)
    ),
    rest=st.binary(max_size=20),
)
def test_nothing_but_a_refusal_comes_of_nonsense(
    inputs: object, more: dict[str, object], rest: bytes
) -> None:
    head = json.dumps({"inputs": inputs, **more}).encode()
    for body, length in ((head + rest, str(len(head))), (head, None), (rest, None)):
        with suppress(RowsRefused):
            read_inference(body, length)
