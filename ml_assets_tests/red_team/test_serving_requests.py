"""Requests to the server that are no requests: refused with a sentence, and cheaply."""

import json
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request

from ml_assets.errors import MlAssetsError
from ml_assets.extras.serving.access import _of_another_site
from ml_assets.extras.serving.app import _name_of
from ml_assets.extras.serving.open_inference import read_inference

TENSOR = {"name": "temp", "datatype": "FP64", "shape": [1], "data": [0.1]}


def asked(**said: Any) -> bytes:
    return json.dumps({"inputs": [TENSOR], **said}).encode()


@pytest.mark.parametrize(
    "body",
    [
        asked(outputs=5),
        asked(outputs=True),
        asked(inputs=[{**TENSOR, "datatype": {"FP64": 1}}]),
        asked(inputs=[{**TENSOR, "datatype": ["FP64"]}]),
    ],
)
def test_what_is_of_another_type_is_refused(body: bytes) -> None:
    with pytest.raises(MlAssetsError):
        read_inference(body, None)


@pytest.mark.parametrize("name", [123, [1], {"a": 1}])
def test_an_id_that_is_no_text_is_refused(name: object) -> None:
    with pytest.raises(MlAssetsError):
        found = read_inference(asked(id=name), None)
        _name_of(Request({"type": "http", "headers": []}), found.id)


def test_an_output_is_asked_for_once() -> None:
    """80 KB that name one output 1500 times, for 4096 rows, were answered with 123 MB in 30 s."""
    with pytest.raises(MlAssetsError):
        read_inference(asked(outputs=[{"name": "probability"}] * 1500), None)


def test_an_origin_that_is_no_address_is_another_site() -> None:
    refusal = _of_another_site(Headers({"origin": "http://[evil", "host": "127.0.0.1"}))
    assert refusal is not None and refusal.status_code == 403
