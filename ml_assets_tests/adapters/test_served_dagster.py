"""A launch whose answer does not come: what is told of it is what can be known."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
import pytest

from ml_assets.adapters import served_dagster
from ml_assets.adapters.served_dagster import DagsterAway, launch

HTML = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\n<html"
GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nbad"


@pytest.fixture(autouse=True)
def instance(monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as instance:
        monkeypatch.setattr(served_dagster, "open_instance", lambda: _kept(instance))
        yield instance


@contextmanager
def _kept(instance: dg.DagsterInstance) -> Iterator[dg.DagsterInstance]:
    yield instance


@contextmanager
def answering(answer: bytes, asked: list[bytes]) -> Iterator[str]:
    """A server that takes each request, answers so, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    asked.append(connection.recv(65536))
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_where_nobody_listens_nothing_was_launched() -> None:
    with pytest.raises(DagsterAway, match=r"nothing was launched\. Start it: ml-assets ui"):
        launch("http://127.0.0.1:1", "p__refresh", {}, {})


@pytest.mark.parametrize("answer", [b"", HTML, GATEWAY], ids=["hangs up", "html", "a gateway's"])
def test_where_the_answer_is_lost_it_may_have_been_launched(answer: bytes) -> None:
    asked: list[bytes] = []
    with (
        answering(answer, asked) as url,
        pytest.raises(DagsterAway, match=r"may still launch the run"),
    ):
        launch(url, "p__refresh", {}, {})
    assert asked


def test_a_run_that_was_launched_is_found_though_its_answer_is_lost(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(tag: str, value: str) -> tuple[str, dict[str, str]]:
        run = instance.add_run(dg.DagsterRun("p__refresh", tags={tag: value}))
        return run.run_id, dict(run.tags)

    monkeypatch.setattr(served_dagster, "tagged_run", begun)
    with answering(b"", []) as url:
        run = launch(url, "p__refresh", {}, {})
    assert instance.get_run_by_id(run) is not None
