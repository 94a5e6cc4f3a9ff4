"""The reports alone, as a cluster serves them: a program behind a login, that a signal ends."""

import http.client
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds.world import free_ports

PAGE = "/irises/0123456789abcdef.html"


def test_it_serves_what_the_login_asks_for_until_it_is_ended(tmp_path: Path) -> None:
    home = tmp_path / "home"
    file = home / "objects" / "reports" / PAGE[1:]
    file.parent.mkdir(parents=True)
    file.write_text("<p>a page</p>")
    (port,) = free_ports(1)
    apart = {name: value for name, value in os.environ.items() if not name.startswith("ML_ASSETS")}
    told = {"ML_ASSETS_HOME": str(home), "ML_ASSETS_REPORTS_URL": "https://ml.example/reports"}
    with subprocess.Popen(
        [sys.executable, "-m", "ml_assets.cli.main", "ops", "serve-reports", "--port", str(port)],
        env=apart | told,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        assert (
            server.stdout.readline()
            == f"Reports: https://ml.example/reports, from 127.0.0.1:{port}\n"
        )
        assert asked(port, f"/reports{PAGE}") == (200, "<p>a page</p>")
        assert asked(port, PAGE)[0] == 404
        assert asked(port, "/reports/irises/experiments.html")[0] == 404, (
            "there is no such pipeline"
        )
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


@pytest.mark.parametrize("command", [["ui"], ["ops", "serve-reports"]])
@pytest.mark.parametrize("port", ["99999", "0", "-1", "http"])
def test_a_port_that_is_none_is_told(command: list[str], port: str, cli: Cli) -> None:
    said = cli(*command, f"--port={port}", code=2).err
    assert f"'{port}' is not a number from 1 to 65535" in said


def asked(port: int, path: str) -> tuple[int, str]:
    """As the login asks, which passes on the name that the browser used."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Host": "ml.example"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()
