"""The reports over HTTP: a page each, and nothing else of this machine."""

import http.client
import re
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ml_assets.actions.report_server import serving_reports
from ml_assets.errors import SettingsError
from ml_assets.store.s3.objects import S3Objects
from ml_assets_tests.servers.s3 import BUCKET, s3_server
from ml_assets_tests.store.s3_rights import Rights
from ml_assets_tests.worlds.world import free_ports

PAGE = "0123456789abcdef.html"


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    folder = tmp_path / "objects" / "reports"
    (folder / "irises").mkdir(parents=True)
    (folder / "irises" / PAGE).write_text("<p>a page</p>")
    (folder / "irises" / "search.html").write_text("<p>a search</p>")
    (folder / "irises" / "notes.txt").write_text("secret")
    (folder / "irises" / "fedcba9876543210.html").symlink_to(tmp_path / "secret.html")
    (folder / PAGE).write_text("secret")
    (tmp_path / "objects" / PAGE).write_text("secret")
    (tmp_path / "secret.html").write_text("secret")
    (port,) = free_ports(1)
    with serving_reports(folder, f"http://127.0.0.1:{port}"):
        yield port


def ask(
    port: int, path: str, method: str = "GET", host: str | None = None
) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{port}")
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), dict(answer.getheaders())


def test_a_report_is_a_page_that_loads_nothing(port: int) -> None:
    status, body, headers = ask(port, f"/irises/{PAGE}")
    assert (status, body) == (200, "<p>a page</p>")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert ask(port, f"/irises/{PAGE}", "HEAD")[:2] == (200, "")
    assert ask(port, "/irises/search.html")[:2] == (200, "<p>a search</p>")


def test_the_first_page_lists_the_reports_only(port: int) -> None:
    status, body, _ = ask(port, "/")
    assert status == 200
    assert f'href="/irises/{PAGE}"' in body
    assert "notes" not in body and "search" not in body


@pytest.mark.parametrize(
    "path",
    [
        "/irises/../../" + PAGE,
        "/irises/%2e%2e/%2e%2e/" + PAGE,
        "/irises/..%2f..%2f" + PAGE,
        "/../" + PAGE,
        "//etc/passwd",
        "/etc/passwd",
        "/irises",
        "/irises/",
        "/irises/notes.txt",
        "/irises/fedcba9876543210.html",
        "/" + PAGE,
        f"/irises/{PAGE}/",
        f"/irises/{PAGE}%00",
        f"/Irises/{PAGE}",
    ],
)
def test_what_is_no_report_is_not_served(port: int, path: str) -> None:
    status, body, _ = ask(port, path)
    assert status == 404
    assert "secret" not in body


def test_a_page_of_another_name_cannot_make_this_server_its_own(port: int) -> None:
    assert ask(port, f"/irises/{PAGE}", host="evil.example")[0] == 403
    assert ask(port, f"/irises/{PAGE}", host=f"localhost:{port}")[0] == 200
    mine = f"Host: localhost:{port}\r\n".encode()
    for request, status in ((b"/", b"403"), (b"http://[x/", b"404")):
        twice = mine + b"Host: evil.example\r\n" if status == b"403" else mine
        with socket.create_connection(("127.0.0.1", port)) as asking:
            asking.sendall(b"GET " + request + b" HTTP/1.0\r\n" + twice + b"\r\n")
            assert asking.recv(100).split()[1] == status


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Reports.Example.org", "reports.example.org"),
        ("https://reports.example.org:443", "reports.example.org"),
        ("http://reports.example.org", "reports.example.org:80"),
    ],
)
def test_a_browser_may_write_the_name_in_its_own_way(tmp_path: Path, url: str, host: str) -> None:
    (port,) = free_ports(1)
    with serving_reports(tmp_path, url, port=port):
        assert ask(port, "/", host=host)[0] == 200
        assert ask(port, "/", host=f"{host.partition(':')[0]}:8080")[0] == 403


def test_it_listens_on_this_machine_only_and_is_gone_afterwards(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with serving_reports(tmp_path, f"http://127.0.0.1:{port}"):
        assert "None yet" in ask(port, "/")[1]
        with (
            pytest.raises(SettingsError, match="ML_ASSETS_REPORTS_URL"),
            serving_reports(tmp_path, f"http://127.0.0.1:{port}"),
        ):
            pass
    with pytest.raises(ConnectionRefusedError):
        ask(port, "/")


def test_the_page_of_runs_is_made_when_it_is_asked_for(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    made: list[str] = []

    def make(pipeline: str) -> str | None:
        made.append(pipeline)
        return "<p>runs</p>" if pipeline == "irises" else None

    with serving_reports(tmp_path, f"http://127.0.0.1:{port}", make):
        status, body, headers = ask(port, "/irises/experiments.html")
        assert (status, body) == (200, "<p>runs</p>")
        assert "script-src 'sha256-" in headers["Content-Security-Policy"]
        assert ask(port, "/tulips/experiments.html")[0] == 404
        assert ask(port, "/irises/experiments.html", host="evil.example")[0] == 403
        assert ask(port, "/../experiments.html")[0] == 404
    assert made == ["irises", "tulips"]


def test_a_page_that_another_home_put_into_the_store_is_served_by_keys_that_only_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    reads = {"Effect": "Allow", "Action": ["s3:ListBucket", "s3:GetObject"]}
    where = [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/state/*"]
    with s3_server(monkeypatch) as server:
        other = S3Objects(tmp_path / "other", f"s3://{BUCKET}/state")
        server.rights["reader"] = Rights([{**reads, "Resource": where}])
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
        own = S3Objects(tmp_path / "own", f"s3://{BUCKET}/state")
        refresh = partial(own.refresh, "reports")
        url = f"http://127.0.0.1:{port}"
        with serving_reports(own.root / "reports", url, refresh=refresh):
            assert ask(port, f"/irises/{PAGE}")[0] == 404
            for page in ("<p>released</p>", "<p>rolled back</p>"):
                other.write_bytes(page.encode(), "reports", "irises", PAGE)
                assert PAGE in ask(port, "/")[1]
                assert ask(port, f"/irises/{PAGE}")[1] == page


def test_behind_a_login_it_has_the_logins_name_and_path(tmp_path: Path) -> None:
    (tmp_path / "irises").mkdir()
    (tmp_path / "irises" / PAGE).write_text("<p>a page</p>")
    (port,) = free_ports(1)
    who, card = "reports.example", "/irises/card/flowers/all"
    url, cards = f"https://{who}/all/reports", lambda *named: f"<p>{named}</p>"
    with serving_reports(tmp_path, url, str.upper, cards, port=port):
        body = ask(port, "/all/reports/", host=who)[1]
        links = re.findall(r'href="([^"]+)"', body)
        assert links == [f"/all/reports/irises/{name}" for name in ("experiments.html", PAGE)]
        assert {ask(port, link, host=who)[:2] for link in links} == {
            (200, "IRISES"),
            (200, "<p>a page</p>"),
        }
        assert "flowers" in ask(port, f"/all/reports{card}", host=who)[1]
        for path in (
            "/",
            f"/irises/{PAGE}",
            "/irises/experiments.html",
            card,
            "/all/reportsirises",
        ):
            assert ask(port, path, host=who)[0] == 404
        assert ask(port, "/all/reports/", host="evil.example")[0] == 403
