"""Both servers, asked by a tool that others wrote, by their own OpenAPI documents: none fails."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ml_assets_tests.extras.api.calling import OPERATOR, Api, api_of
from ml_assets_tests.extras.serving.serving import Serving, serving
from ml_assets_tests.worlds.world import World

schemathesis = pytest.importorskip("schemathesis", reason="pip install '.[test]'")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")
V1 = "/api/v1"
Document = dict[str, Any]
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
"""What is made from a document may be slow to make."""
MEASURES = ("sepal_length", "sepal_width", "petal_length", "petal_width")


def often(schema: Document, *real: str) -> Document:
    """The schema, and what there is: so that most requests come beyond a 404."""
    return {"anyOf": [{"enum": [*real]}, schema]}


def fuzzed(document: Document, mode: str, ask: Callable[[Any], None]) -> int:
    """Ask each operation of a document thirty times; how many there are.

    Args:
        mode: POSITIVE: what the document allows; NEGATIVE: what it does not.
    """
    wanted = schemathesis.GenerationMode[mode]
    operations = [one.ok() for one in schemathesis.openapi.from_dict(document).get_all_operations()]
    for one in operations:
        if mode == "NEGATIVE" and not (one.body or one.path_parameters or one.query):
            continue
        thirty = settings(max_examples=30, suppress_health_check=SLOW)
        thirty(given(one.as_strategy(generation_mode=wanted))(ask))()
    return len(operations)


@pytest.fixture(scope="module")
def api(released: World) -> Iterator[Api]:
    with api_of(released) as found:
        yield found


@pytest.fixture(scope="module")
def asked_of_api(api: Api) -> Document:
    _, document = api.ask("/openapi.json", token=None)
    run = api.ask(f"{V1}/experiments/irises/runs")[1]["items"][0]["run_id"]
    model = api.ask(f"{V1}/models/irises/versions")[1]["items"][0]["version"]
    real = {
        "name": ["irises"],
        "pipeline_id": ["irises", "deliveries"],
        "experiment_id": ["irises"],
        "run_id": [run],
        "version": [model, model[:12]],
    }
    for route in document["paths"].values():
        for operation in route.values():
            for one in operation.get("parameters", ()):
                if one["in"] == "path":
                    one["schema"] = often(one["schema"], *real[one["name"]])
    shapes = document["components"]["schemas"]
    for shape, field in (("RunRequest", "pipeline_id"), ("RegisterRequest", "name")):
        fields = shapes[shape]["properties"]
        fields[field] = often(fields[field], *real["pipeline_id"])
    return document


@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_the_api_answers_whatever_it_is_asked_as_its_document_says(
    api: Api, asked_of_api: Document, mode: str
) -> None:
    def ask(case: Any) -> None:
        answer = case.call(base_url=api.url, headers={"Authorization": f"Bearer {OPERATOR}"})
        away = answer.status_code == 503 and "Dagster does not answer" in answer.text
        assert answer.status_code < 500 or away, answer.text
        case.validate_response(
            answer,
            checks=[
                checks.status_code_conformance,
                checks.content_type_conformance,
                checks.response_schema_conformance,
            ],
        )

    assert fuzzed(asked_of_api, mode, ask) == 11


@pytest.fixture(scope="module")
def server(released: World) -> Iterator[Serving]:
    with serving(released, "irises") as found:
        yield found


@pytest.fixture(scope="module")
def asked_of_server(server: Serving) -> Document:
    document = server.ask("/openapi.json").body
    number = {"type": ["number", "null"]}
    row = {
        "type": "object",
        "properties": dict.fromkeys(MEASURES, number),
        "required": [*MEASURES],
    }
    content = document["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]
    kinds = content["schema"]["oneOf"]
    (rows,) = [kind["properties"]["rows"] for kind in kinds if "rows" in kind["properties"]]
    rows["items"] = row
    tensor = {
        "type": "object",
        "properties": {
            "name": often({"type": "string"}, *MEASURES),
            "datatype": often({"type": "string"}, "FP64", "FP32", "INT64", "BYTES"),
            "shape": {"anyOf": [{"enum": [[1], [1, 1]]}, {"type": "array"}]},
            "data": {"type": "array", "items": number},
        },
        "required": ["name", "datatype", "shape", "data"],
    }
    inputs = {"type": "object", "properties": {"inputs": {"type": "array", "items": tensor}}}
    model = "/v2/models/irises"
    for path in (f"{model}/infer", f"{model}/versions/{{version}}/infer"):
        body = {"application/json": {"schema": {**inputs, "required": ["inputs"]}}}
        document["paths"][path]["post"]["requestBody"] = {"required": True, "content": body}
    (version,) = server.ask(model).body["versions"]
    for path, route in document["paths"].items():
        for operation in route.values() if "{version}" in path else ():
            (one,) = operation["parameters"]
            one["schema"] = often(one["schema"], version)
    return document


@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_the_server_answers_whatever_it_is_asked(
    server: Serving, asked_of_server: Document, mode: str
) -> None:
    answers = Counter[int]()

    def ask(case: Any) -> None:
        answer = case.call(base_url=f"http://127.0.0.1:{server.port}")
        answers[answer.status_code] += 1
        assert answer.status_code < 500, answer.text

    assert fuzzed(asked_of_server, mode, ask) == 11
    assert mode == "NEGATIVE" or answers[200], "some of it is what it says it takes"
