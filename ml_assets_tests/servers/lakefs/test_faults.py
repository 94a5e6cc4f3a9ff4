"""Faults on demand: what a client of the tests' lakeFS lives through, and what was done by then."""

import socket
import threading
from typing import Any

import pytest
import urllib3
from botocore.exceptions import ClientError
from lakefs_client import models
from urllib3.exceptions import HTTPError

from ml_assets_tests.servers.lakefs import Fault, LakeFSServer
from ml_assets_tests.servers.lakefs.clients import Content, Demo, s3_client


@pytest.fixture
def demo(server: LakeFSServer) -> Demo:
    server.faults.clear()
    demo = Demo(server)
    demo.put("main", {"a": "0123456789"})
    return demo


def commit(demo: Demo) -> Any:
    return demo.ask(demo.client.commits_api.commit, "main", models.CommitCreation("m"))


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_status_before_the_effect_leaves_nothing_done(demo: Demo, status: int) -> None:
    demo.server.faults.add(Fault("POST", "/commits$", status=status))
    wish = models.CommitCreation("m")
    refusal = demo.refused(demo.client.commits_api.commit, "main", wish)
    assert (refusal[0], "message" in refusal[1]) == (status, True)
    assert demo.log() == ["Repository created"]
    commit(demo)  # the fault is used up
    assert demo.log() == ["m", "Repository created"]


def test_a_status_after_the_effect_hides_that_it_was_done(demo: Demo) -> None:
    demo.server.faults.add(Fault("POST", "/commits$", status=500, after=True))
    wish = models.CommitCreation("m")
    assert demo.refused(demo.client.commits_api.commit, "main", wish)[0] == 500
    assert demo.log() == ["m", "Repository created"]


@pytest.mark.parametrize(("after", "log"), [(False, []), (True, ["m"])])
def test_the_line_breaks_before_or_after_the_effect(
    demo: Demo, after: bool, log: list[str]
) -> None:
    demo.server.faults.add(Fault("POST", "/commits$", after=after))
    with pytest.raises(HTTPError):
        demo.ask(
            demo.client.commits_api.commit, "main", models.CommitCreation("m"), _request_timeout=30
        )
    assert demo.log() == [*log, "Repository created"]


def test_a_body_breaks_off_before_its_end(demo: Demo) -> None:
    demo.server.faults.add(Fault("GET", "/objects[?]", cut=4))
    get = demo.client.objects_api.get_object
    answer = demo.ask(get, "main", "a", _preload_content=False)
    with pytest.raises(HTTPError):
        answer.read()
    assert demo.read("main", "a") == "0123456789"


def test_a_fault_may_come_several_times_or_always(demo: Demo) -> None:
    fault = demo.server.faults.add(Fault("GET", "/branches/main$", status=503, times=2))
    get = demo.client.branches_api.get_branch
    assert [demo.refused(get, "main")[0] for _ in range(2)] == [503, 503]
    demo.head()
    fault.times = -1
    demo.server.faults.add(fault)
    assert [demo.refused(get, "main")[0] for _ in range(3)] == [503, 503, 503]
    demo.server.faults.clear()
    demo.head()


def test_an_answer_that_comes_too_late_is_of_something_that_was_done(demo: Demo) -> None:
    given_up = threading.Event()
    demo.server.faults.add(Fault("POST", "/commits$", then=lambda: given_up.wait(60)))
    wish = models.CommitCreation("m")
    with pytest.raises(HTTPError):
        demo.ask(demo.client.commits_api.commit, "main", wish, _request_timeout=0.2)
    assert demo.log() == ["Repository created"]
    given_up.set()
    while demo.log(amount=1) != ["m"]:  # in the server's own time
        pass


def test_the_gateway_fails_in_the_words_of_s3(demo: Demo) -> None:
    s3 = s3_client(demo.server)
    where = {"Bucket": demo.repo, "Key": "main/a"}
    for status, code in ((503, "SlowDown"), (500, "InternalError")):
        demo.server.faults.add(Fault("GET", f"/{demo.repo}/main/a", status=status))
        with pytest.raises(ClientError) as caught:
            s3.get_object(**where)
        assert caught.value.response["Error"]["Code"] == code
    demo.server.faults.add(Fault("PUT", f"/{demo.repo}/main/b", status=500, after=True))
    with pytest.raises(ClientError):
        s3.put_object(Bucket=demo.repo, Key="main/b", Body=b"there")
    assert demo.read("main", "b") == "there"


def test_the_object_store_has_faults_of_its_own(demo: Demo) -> None:
    staging = demo.client.staging_api
    place = demo.ask(staging.get_physical_address, "main", "b", presign=True)
    demo.server.faults.add(Fault("PUT", "/data/", status=503))
    retry = urllib3.Retry(0, raise_on_status=False)
    first = urllib3.request("PUT", place.presigned_url, body=b"1", retries=retry)
    second = urllib3.request("PUT", place.presigned_url, body=b"1", retries=retry)
    assert (first.status, second.status) == (503, 200)


@pytest.mark.parametrize("framing", ["Content-Length: 10", "Transfer-Encoding: chunked"])
def test_a_client_that_dies_in_the_middle_of_a_body_wrote_nothing(demo: Demo, framing: str) -> None:
    host, _, port = demo.server.endpoint.rpartition("/")[2].partition(":")
    keys = f"{demo.server.access_key}:{demo.server.secret_key}"
    authorization = urllib3.make_headers(basic_auth=keys)["authorization"]
    start = "a\r\n01234" if "chunked" in framing else "01234"
    path = f"/api/v1/repositories/{demo.repo}/branches/main/objects?path=half"
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Authorization: {authorization}", framing]
    with socket.create_connection((host, int(port))) as line:
        line.sendall("\r\n".join([*lines, "", start]).encode())
        line.shutdown(socket.SHUT_WR)
        assert line.recv(1) == b""  # no answer: the server has given it up
    assert demo.paths("main") == ["a"]


def test_every_request_is_counted(demo: Demo) -> None:
    before = demo.server.faults.count("POST", "/objects[?]")
    upload = demo.client.objects_api.upload_object
    demo.ask(upload, "main", "b", content=Content(b"1"))
    assert demo.server.faults.count("POST", "/objects[?]") == before + 1
    assert ("GET", f"/api/v1/repositories/{demo.repo}/branches/main") not in (
        demo.server.faults.requests
    )
