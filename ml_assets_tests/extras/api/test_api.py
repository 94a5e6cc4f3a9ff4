"""ml-assets ops api: who may ask, what is shown, and what a run may not choose."""

import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ml_assets_tests.extras.api.calling import OPERATOR, READER, Api, api_of
from ml_assets_tests.worlds.world import World

V1 = "/api/v1"
RUNS = f"{V1}/pipelines/runs"
STAGE = f"{V1}/models/{{name}}/versions/{{version}}/stage"
RUN = {
    "pipeline_id": "irises",
    "config": {
        "data_source": "flowers",
        "model_type": "mlp",
        "hyperparams": {"epochs": 31, "learning_rate": 0.01, "clip_norm": 1, "width": 32.0},
        "resources": {"nodes": 1, "gpus_per_node": 0},
    },
}


@pytest.fixture(scope="module")
def api(released: World) -> Iterator[Api]:
    with api_of(released, ML_ASSETS_REGISTER_FROM="/nowhere") as found:
        yield found


def every(api: Api, path: str, limit: int) -> list[dict[str, Any]]:
    """A list by its pages."""
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        status, page = api.ask(f"{path}?limit={limit}{after}")
        assert status == 200, page
        assert len(page["items"]) <= limit
        found += page["items"]
        if page["next"] is None:
            return found
        after = f"&after={page['next']}"


# --- who may ask ----------------------------------------------------------------------------------


def test_nobody_is_let_in_without_a_token_and_a_reader_changes_nothing(api: Api) -> None:
    paths = (f"{V1}/pipelines", f"{V1}/experiments", f"{V1}/models/irises/versions")
    for token in (None, "", "another-token-of-32-characters...", "é"):
        assert {
            api.ask(path, token=token and token.encode().decode("latin-1"))[0] for path in paths
        } == {401}
        assert api.ask(RUNS, RUN, token=None)[0] == 401
    assert {api.ask(path, token=READER)[0] for path in paths} == {200}
    status, said = api.ask(RUNS, RUN, token=READER)
    assert (status, said["error"]) == (
        403,
        "rita may only read: this needs the token of an operator.",
    )
    body = {"stage": "production"}
    assert api.send("PUT", f"{V1}/models/irises/versions/abcdef/stage", body, READER)[0] == 403


def test_it_does_not_start_where_nobody_could_ask(released: World) -> None:
    assert "The API could not answer anyone" in released.cli("ops", "api", code=1)


# --- what is shown --------------------------------------------------------------------------------


def test_lists_come_by_pages_and_each_thing_once(api: Api) -> None:
    names = [one["pipeline_id"] for one in every(api, f"{V1}/pipelines", 1)]
    assert names == ["deliveries", "irises"]
    assert [one["experiment_id"] for one in every(api, f"{V1}/experiments", 1)] == names
    for name in names:
        runs = every(api, f"{V1}/experiments/{name}/runs", 1)
        assert runs == every(api, f"{V1}/experiments/{name}/runs", 200)
        assert len({run["run_id"] for run in runs}) == len(runs) > 0
        assert api.ask(f"{V1}/experiments/{name}")[1]["runs"] == len(runs)
    status, said = api.ask(f"{V1}/pipelines?after=zzz")
    assert (status, "ask without 'after'" in said["error"]) == (422, True)
    assert api.ask(f"{V1}/pipelines?limit=0")[0] == 422


def test_a_run_says_what_it_was_made_from_and_came_to(api: Api, released: World) -> None:
    (first, *_) = every(api, f"{V1}/experiments/irises/runs", 50)[::-1]
    status, run = api.ask(f"{V1}/experiments/irises/runs/{first['run_id']}")
    assert status == 200
    assert run["metrics"]["accuracy"] > 0.8
    assert run["intervals"]["accuracy"]["value"] == run["metrics"]["accuracy"]
    assert run["params"]["training"]["learning_rate"] == 0.01
    assert {one["key"] for one in run["inputs"]} >= {"irises/feature_set"}
    told = json.loads(released.cli("release", "history", "irises", "--json"))
    assert run["model_version"] == told["history"][-1]["model"]
    assert api.ask(f"{V1}/experiments/irises/runs/none")[0] == 404


def test_a_version_has_its_stage_and_every_gate(api: Api, released: World) -> None:
    told = json.loads(released.cli("release", "history", "irises", "--json"))
    model = told["stages"]["production"]
    (there,) = [
        one for one in every(api, f"{V1}/models/irises/versions", 1) if one["version"] == model
    ]
    assert there["stage"] == "production"
    status, whole = api.ask(f"{V1}/models/irises/versions/{model[:8]}")
    assert status == 200
    assert {gate["name"] for gate in whole["gates"]} >= {"accuracy_floor", "beats_constant"}
    assert [move["stage"] for move in whole["moves"]] == ["production"]
    assert api.ask(f"{V1}/models/irises/versions/abc")[0] == 404
    for place in ("models/irises/versions", "experiments/irises/runs", "experiments"):
        status, said = api.ask(f"{V1}/{place}/{'n' * 60_000}")
        assert (status, len(said["error"]) < 1000) == (404, True), place


def test_the_page_names_every_route_and_loads_nothing(api: Api) -> None:
    status, shown = api.ask("/docs", token=None)
    _, document = api.ask("/openapi.json", token=None)
    assert status == 200
    assert all(f"<code>{path}</code>" in shown for path in document["paths"])
    assert "<script" not in shown and "http" not in shown.replace("http-equiv", "")


# --- what a run may not choose --------------------------------------------------------------------


def test_a_run_of_the_spec_is_handed_to_dagster_which_is_away(api: Api) -> None:
    status, said = api.ask(RUNS, RUN)
    assert status == 503
    assert "nothing was launched. Start it: ml-assets ui" in said["error"]


def test_every_mistake_is_named_with_its_remedy(api: Api) -> None:
    said = api.problems(
        {
            "pipeline_id": "irises",
            "config": {
                "data_source": "flower",
                "model_type": "lightgbm",
                "hyperparams": {"epochs": 0, "learning_rat": 0.1, "batch_size": 48, "width": 33},
                "resources": {"nodes": True, "memory": {"env": "ML_ASSETS_SIGNING_KEY"}},
            },
        }
    )
    assert "Did you mean 'flowers'?" in said["config.data_source"]
    assert "change model.family in defs.yaml" in said["config.model_type"]
    assert "expected a whole number from 1 to 1,000,000." in said["config.hyperparams.epochs"]
    assert "Did you mean 'learning_rate'?" in said["config.hyperparams.learning_rat"]
    assert "batch_size is 24 in the spec; 48 was asked for" in said["config.hyperparams.batch_size"]
    assert "width is 32 in the spec" in said["config.hyperparams.width"]
    assert "change cluster in defs.yaml" in said["config.resources.nodes"]
    assert "memory is '4Gi' in the spec" in said["config.resources.memory"]
    assert len(said) == 8


def test_what_is_no_address_of_a_model_is_told(api: Api) -> None:
    asked = {"name": "irises", "version": "1", "artifact_uri": "http://[x"}
    status, said = api.ask(f"{V1}/models/register", asked)
    assert (status, said["problems"][0]["field"]) == (422, "body.artifact_uri")
    assert "'http://[x' is not an address: Invalid IPv6 URL." in said["problems"][0]["said"]


def test_what_is_no_such_body_is_told_by_field(api: Api) -> None:
    assert "body.pipeline_id" in api.problems({"config": {}})
    unknown = {"pipeline_id": "irises", "config": {"gates": []}, "run_config": {}}
    assert api.problems(unknown).keys() == {"body.config.gates", "body.run_config"}
    for body, said in (
        (b"{", "line 1"),
        (b"\xff", "UTF-8"),
        (b'{"pipeline_id": "irises", "pipeline_id": "tulips"}', "is there twice"),
        (b'{"pipeline_id": "\\ud800"}', "half a character"),
        (b'{"config": ' + b"[" * 5000 + b"]" * 5000 + b"}", "deep"),
        (b'{"config": ' + b"9" * 5000 + b"}", "thousands of digits; write it shorter"),
        (b'{"stage": "\xc2\xab", "stage": ""}', "is there twice: on line 1; keep"),
    ):
        status, answer = api.ask(RUNS, body)
        assert (status, answer.keys()) == (400, {"error", "problems"})
        assert said in answer["error"]
    for method, path, code, said in (
        ("DELETE", RUNS, 405, f"DELETE is not allowed at {RUNS}: /docs has the routes."),
        ("GET", "/api/v2", 404, "There is no /api/v2 here: /docs has the routes."),
        ("GET", "/" + "n" * 60_000, 404, f"There is no /{'n' * 199} here: /docs has the routes."),
    ):
        assert api.send(method, path, None) == (code, {"error": said, "problems": []})
    assert api.ask(RUNS, b'"' + b"x" * (2 << 20) + b'"')[0] == 413
    status, answer = api.ask(f"{V1}/models/register", {"name": "x", "stage": "archived"})
    assert status == 422
    assert "body.stage" in {one["field"] for one in answer["problems"]}


@pytest.mark.daemon
def test_a_stranger_is_answered_before_his_body_comes_and_a_slow_body_is_cut_off(api: Api) -> None:
    port = int(api.url.rpartition(":")[2])
    for token, status in (("nobody's", b" 401 "), (OPERATOR, b" 408 ")):
        head = (
            f"POST {RUNS} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {token}\r\nContent-Length: 100\r\n\r\n{{"
        )
        with socket.create_connection(("127.0.0.1", port), timeout=60) as slow:
            slow.sendall(head.encode())
            assert status in slow.recv(100)


@pytest.mark.parametrize("name", ["tulips", "../irises", "irises/../irises", "%2e%2e", "iris es"])
def test_a_pipeline_is_one_that_there_is_and_no_path(api: Api, name: str) -> None:
    assert api.ask(RUNS, {"pipeline_id": name})[0] == 404
    assert api.ask(f"{V1}/experiments/{name.replace(' ', '%20')}/runs")[0] == 404


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
names = st.sampled_from(["epochs", "learning_rate", "nodes", "env", "config"]) | st.text(max_size=6)
pipeline = st.sampled_from(["irises", "irises", "deliveries", "no"])
stage = st.sampled_from(["none", "staging", "canary", "production", "archived"]) | values
BODIES = {
    RUNS: st.fixed_dictionaries(
        {"pipeline_id": pipeline | values},
        optional={
            "config": values
            | st.fixed_dictionaries(
                {"hyperparams": st.dictionaries(names, values, min_size=1)},
                optional={"data_source": values, "model_type": values, "resources": values},
            )
        },
    ),
    f"{V1}/models/register": st.fixed_dictionaries(
        {"name": pipeline, "version": st.text(min_size=1), "artifact_uri": st.text(min_size=1)},
        optional={"metrics": st.dictionaries(names, st.floats()) | values, "stage": stage},
    ),
    STAGE: st.fixed_dictionaries({"stage": stage}, optional={"reason": st.text() | values}),
}
"""What each route is sent, where it takes a body."""


@pytest.fixture(scope="module")
def routes(api: Api) -> list[tuple[str, str]]:
    """Method and path of all that the document names."""
    _, document = api.ask("/openapi.json", token=None)
    return [(how, path) for path, said in document["paths"].items() for how in said]


@pytest.fixture(scope="module")
def real(api: Api) -> dict[str, str]:
    """Parameter of a path -> one that there is."""
    run = every(api, f"{V1}/experiments/irises/runs", 50)[0]["run_id"]
    model = every(api, f"{V1}/models/irises/versions", 50)[0]["version"]
    return {"name": "irises", "experiment_id": "irises", "run_id": run, "version": model}


@given(st.data())
@settings(max_examples=200)
def test_no_request_makes_it_stumble(
    api: Api, routes: list[tuple[str, str]], real: dict[str, str], data: st.DataObject
) -> None:
    """Most have names that there are, so that they come beyond a 404."""
    method, path = data.draw(st.sampled_from(routes))
    body = data.draw(BODIES[path]) if path in BODIES else None
    for name, there in real.items():
        known = st.sampled_from([there, there, there[:7]]) | st.text(min_size=1, max_size=20)
        if f"{{{name}}}" in path:
            path = path.replace(f"{{{name}}}", quote(data.draw(known), safe=""))
    asked = st.fixed_dictionaries({}, optional={"limit": st.integers(), "after": st.text()})
    query = urlencode(data.draw(asked)) if method == "get" else ""
    status, said = api.send(method.upper(), f"{path}?{query}", body)
    away = status == 503 and "Dagster does not answer" in said["error"]  # it was a body like ours
    assert status in (200, 307, 404, 409, 422) or away, said
