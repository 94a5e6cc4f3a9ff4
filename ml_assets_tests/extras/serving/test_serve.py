"""ml-assets serve: the release over HTTP, by the protocol that other clients speak."""

import json
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import psutil
import pytest
import tritonclient.http as triton

from ml_assets.assets.released_model.predict import open_release
from ml_assets_tests.extras.serving.serving import PATIENCE, Serving, serving
from ml_assets_tests.worlds.processes import below
from ml_assets_tests.worlds.world import World, free_ports

MEASURES = {"sepal_length": 5.1, "sepal_width": 3.5, "petal_length": 1.4, "petal_width": 0.2}
ROWS = [
    MEASURES,
    {**MEASURES, "petal_length": 4.9, "petal_width": None, "flower": 77},
    {"sepal_length": 7, "sepal_width": 3.0, "petal_length": 6, "petal_width": 2.5},
]
INFER = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [1]}]}
TOKEN = "a-token-of-more-than-sixteen"


@pytest.fixture(scope="module")
def irises(released: World) -> Iterator[Serving]:
    with serving(released, "irises", "--queue-rows", "64") as found:
        yield found


@pytest.fixture(scope="module")
def expected(released: World) -> pl.DataFrame:
    """What `predict` says of the rows."""
    frame = pl.DataFrame([{name: row[name] for name in MEASURES} for row in ROWS], strict=False)
    return open_release("irises", released.settings).predict(frame).drop("row")


def test_rows_by_name_get_what_predict_says(
    irises: Serving, released: World, expected: pl.DataFrame
) -> None:
    answer = irises.ask("/predict", {"rows": ROWS})
    assert answer.status == 200
    now = ("--at", "2100-01-01", "--json")
    entry = json.loads(released.cli("release", "was-serving", "irises", *now))["model"]
    assert answer.body["model"] == entry
    assert "was refused since it was released" in answer.body["note"]
    found = pl.DataFrame(answer.body["predictions"])
    assert found["prediction"].to_list() == expected["prediction"].to_list()
    numbers = pl.exclude("prediction")
    assert (
        np.abs(found.select(numbers).to_numpy() - expected.select(numbers).to_numpy()).max() < 1e-6
    )


@pytest.mark.parametrize("binary", [True, False])
def test_a_client_that_others_wrote_is_answered(
    irises: Serving, expected: pl.DataFrame, binary: bool
) -> None:
    with triton.InferenceServerClient(f"127.0.0.1:{irises.port}") as client:
        assert client.is_server_live() and client.is_server_ready()
        assert client.is_model_ready("irises")
        known = client.get_model_metadata("irises")
        assert known is not None
        (version,) = known["versions"]
        inputs = []
        for one in known["inputs"]:
            values = [
                float("nan") if row[one["name"]] is None else row[one["name"]] for row in ROWS
            ]
            tensor = triton.InferInput(one["name"], [len(ROWS)], one["datatype"])
            tensor.set_data_from_numpy(np.array(values, np.float64), binary_data=binary)
            inputs.append(tensor)
        wanted = [
            triton.InferRequestedOutput(one["name"], binary_data=binary) for one in known["outputs"]
        ]
        found = client.infer("irises", inputs, version, wanted, request_id="17")
        assert found.get_response()["id"] == "17"
        words = [w.decode() if binary else w for w in found.as_numpy("prediction")]
        assert words == expected["prediction"].to_list()
        for name in expected.columns[1:]:
            assert np.abs(found.as_numpy(name) - expected[name].to_numpy()).max() < 1e-6
        with pytest.raises(triton.InferenceServerException, match="There is no version '000"):
            client.infer("irises", inputs, "000000000000")


def test_each_mistake_has_its_status_and_a_sentence(irises: Serving) -> None:
    many = {"rows": [MEASURES] * 65}
    for path, body, status, said in (
        (
            "/predict",
            {"rows": [{**MEASURES, "petal_width": "wide"}]},
            400,
            "«'wide'» is not float64",
        ),
        ("/predict", {"rows": []}, 400, "is empty"),
        ("/predict", {"rows": [{**MEASURES, "petal\ud800": 1}]}, 400, "half a character"),
        ("/v2/models/irises/infer", {**INFER, "id": 123}, 400, "'id' a text"),
        ("/predict", {"rows": [{f"c{n}": 1} for n in range(64)]}, 400, "«'c0'»"),
        ("/predict", {"rows": [{f"c{n}": 1 for n in range(4000)}]}, 413, "send the model's"),
        ("/predict", [MEASURES], 400, 'Send {"rows"'),
        ("/predict", b"{", 400, "not JSON"),
        ("/predict", {"entities": [{"flower": 1}]}, 400, "serves no features online"),
        ("/predict", many, 413, "has 65 rows; at most 64 are accepted"),
        ("/predict", b" " * (5 << 20), 413, "more than 4,194,304 bytes"),
        ("/v2/models/irises/infer", {"inputs": []}, 400, "inputs is empty"),
        ("/v2/models/tulips/infer", {}, 404, "The one model is 'irises'"),
        ("/v2/models/irises/versions/zz", None, 404, "There is no version 'zz'"),
        ("/v2/models/irises/versions/" + "z" * 60_000, None, 404, "There is no version 'zz"),
        ("/nothing/here", None, 404, "There is no /nothing/here here. The one model"),
        ("/" + "n" * 60_000, {}, 404, "There is no /nnn"),
        ("/predict", None, 405, "GET is not allowed at /predict. The one model"),
    ):
        answer = irises.ask(path, body)
        assert answer.status == status, (path, answer)
        assert said in answer.body["error"]
        assert answer.body.keys() == {"error"}
        assert status not in (404, 405) or len(answer.body["error"]) < 1000
    with socket.create_connection(("127.0.0.1", irises.port)) as gone:
        gone.sendall(b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{")
    while 'code="499",route="/predict"' not in irises.ask("/metrics").body:
        pass
    assert 'code="500"' not in irises.ask("/metrics").body
    packed = irises.ask("/predict", b"x", content_encoding="gzip")
    assert packed.status == 415


def test_pages_of_other_sites_are_sent_away(irises: Serving) -> None:
    assert irises.ask("/predict", {"rows": ROWS}, origin="http://evil.example").status == 403
    assert irises.ask("/metrics", None, sec_fetch_site="cross-site").status == 403
    assert irises.ask("/predict", {"rows": ROWS}, origin="http://[evil").status == 403
    assert irises.ask("/v2", None, host="evil.example").status == 400
    assert irises.ask("/redoc").status == 404  # its scripts would come from elsewhere
    with socket.create_connection(("127.0.0.1", irises.port)) as two:
        two.sendall(b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n")
        assert two.recv(100).startswith(b"HTTP/1.1 403 ")


def model_of(server: Serving) -> psutil.Process:
    """The process that computes."""
    (model,) = below(server.process.pid, "ml_assets.training.warm_model")
    return model


def counted(server: Serving, name: str) -> float:
    """One of its metrics."""
    lines = server.ask("/metrics").body.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def wait_until_waiting(server: Serving, rows: int) -> None:
    end = time.monotonic() + 8
    while counted(server, "ml_assets_serving_waiting_rows") != rows:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_waits_is_computed_together_and_who_finds_the_queue_full_is_told_when_to_come(
    irises: Serving,
) -> None:
    """The model is held while 64 rows come, as many as may wait."""
    batches = "ml_assets_serving_batch_rows_count"
    before, model = counted(irises, batches), model_of(irises)
    model.suspend()
    with ThreadPoolExecutor(9) as clients:
        try:
            asked = [clients.submit(irises.ask, "/predict", {"rows": [MEASURES]})]
            wait_until_waiting(irises, 1)
            asked += [clients.submit(irises.ask, "/predict", {"rows": ROWS}) for _ in range(7)]
            asked.append(clients.submit(irises.ask, "/predict", {"rows": [MEASURES] * 42}))
            wait_until_waiting(irises, 64)
            full = irises.ask("/predict", {"rows": [MEASURES]})
        finally:
            model.resume()
        assert {one.result().status for one in asked} == {200}
    assert (full.status, full.headers["retry-after"]) == (429, "1")
    assert "64 rows wait, at most 64 may, and this request has 1:" in full.body["error"]
    assert counted(irises, batches) - before == 2, "the one that came first, then all others"


@pytest.mark.daemon
def test_a_model_that_dies_is_started_again_and_no_request_fails(released: World) -> None:
    with serving(released, "irises") as server:
        model = model_of(server)
        version = server.ask("/predict", {"rows": ROWS}).body["version"]
        model.kill()
        for _ in range(3):
            answer = server.ask("/predict", {"rows": ROWS})
            while "took too long" in answer.body.get("error", ""):  # a busy machine loads slowly
                answer = server.ask("/predict", {"rows": ROWS})
            assert answer.status == 200
        assert counted(server, "ml_assets_serving_model_restarts") == 1
        answered = 'ml_assets_serving_requests_total{code="200",route="/predict"}'
        assert answered in server.ask("/metrics").body
        server.process.terminate()
        _, log = server.process.communicate(timeout=60)
    assert [line for line in log.splitlines() if "process of model" in line] == [
        f"irises: the process of model {version} died (exit status -9): another one is started",
        f"irises: another process of model {version} is loaded and answers",
    ]


@pytest.mark.daemon
def test_bodies_that_arrive_slowly_are_bounded_together(irises: Serving) -> None:
    """60 of 3.9 MB come and do not end: 64 MiB are held, and a small request is answered still.

    The process may keep as much again of what the bodies before have freed; all 60 are 223 MiB.
    """
    head = b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4000000\r\n\r\n"
    server = psutil.Process(irises.process.pid)
    before, full = server.memory_info().rss, irises.ask("/v2")
    for _ in range(5):  # a busy machine sends so slowly that the first are gone before the last
        with ExitStack() as open_ones:
            for _ in range(60):
                slow = socket.create_connection(("127.0.0.1", irises.port))
                open_ones.enter_context(slow)
                slow.sendall(head + b" " * 3_900_000)
            assert irises.ask("/predict", {"rows": ROWS}).status == 200
            until = time.monotonic() + 10  # so long it waits for a body; it reads what was sent
            while full.status != 429 and time.monotonic() < until:
                full = irises.ask("/predict", b" " * 4_190_000)
                grown = server.memory_info().rss - before
                assert grown < 160 << 20, grown
        if full.status == 429:
            break
    assert (full.status, full.headers["retry-after"]) == (429, "1")
    assert full.body["error"].startswith("More than 67,108,864 bytes of bodies arrive at once:")
    end = time.monotonic() + PATIENCE
    while irises.ask("/predict", b" " * 3_000_000).status != 400:
        assert time.monotonic() < end, "nothing of what is gone counts any more"


OTHERWISE = """
import sys

if "ml_assets.training.warm_model" in sys.orig_argv:
    import ml_assets.training.score as score

    load = score.load_predictor

    def load_other(*given):
        predict = load(*given)
        return lambda rows: predict(rows) * 0.999

    score.load_predictor = load_other
"""
"""Of a Python that computes a little otherwise than the one that judged the model."""


def test_a_model_that_answers_its_golden_vectors_otherwise_serves_nobody(
    released: World, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(OTHERWISE)
    there = replace(released, extra={**released.extra, "PYTHONPATH": str(tmp_path)})
    (port,) = free_ports(1)
    said = there.cli("serve", "irises", "--port", str(port), code=1)
    assert "gives other predictions for its golden vectors than when it was judged" in said


def test_no_torch_is_in_the_server(irises: Serving) -> None:
    maps = {entry.path for entry in psutil.Process(irises.process.pid).memory_maps()}
    assert not [path for path in maps if "libtorch" in path]


def test_with_a_token_only_its_holder_is_answered_and_the_end_is_in_peace(released: World) -> None:
    with serving(released, "irises", "--drain", "3600", token=TOKEN) as server:
        assert server.ask("/predict", {"rows": ROWS}).status == 200
        assert server.ask("/v2/models/irises", None, authorization="Bearer other").status == 401
        stranger = Serving(server.port, server.process)
        assert stranger.ask("/predict", {"rows": ROWS}).status == 401
        assert stranger.ask("/metrics").status == 401
        assert stranger.ready()

        server.process.send_signal(signal.SIGTERM)
        while server.ready():
            pass
        answer = server.ask("/predict", {"rows": ROWS})  # it drains: whoever comes is answered
        assert answer.status == 200
        assert answer.headers["connection"] == "close"
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        assert TOKEN not in "".join(server.process.communicate())


def test_it_listens_elsewhere_with_a_token_only(released: World) -> None:
    said = released.cli("serve", "irises", "--host", "0.0.0.0", code=1)
    assert "ML_ASSETS_SERVE_TOKENS holds no token" in said
