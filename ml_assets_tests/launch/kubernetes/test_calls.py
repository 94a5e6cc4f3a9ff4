"""A call is tried again where that helps, within its budget; a refusal is told at once."""

import json
from types import SimpleNamespace

import pytest
from kubernetes.client import ApiException
from kubernetes.config import ConfigException
from urllib3 import exceptions

from ml_assets.errors import AccessRefused, ClusterAway, ClusterRefused, SettingsError
from ml_assets.launch.kubernetes.calls import (
    FIRST_CONTACT_SECONDS,
    ClusterCalls,
    NoAnswer,
    told_by,
    trouble_of,
)
from ml_assets.launch.kubernetes.connection import Connections

RESET = exceptions.ProtocolError("Connection aborted.", ConnectionResetError(104, "reset"))
UNREACHABLE = exceptions.NewConnectionError(None, "refused")  # pyright: ignore[reportArgumentType]
SILENT = exceptions.ReadTimeoutError(None, "/", "timed out")  # pyright: ignore[reportArgumentType]


def answer(status, reason="", message="", headers=None):
    """What the official client raises for an answer that is none."""
    error = ApiException(status=status, reason=reason)
    error.body = json.dumps({"kind": "Status", "reason": reason, "message": message}).encode()
    error.headers = headers
    return error


EXPIRED = answer(401, "Unauthorized", "Unauthorized")


class Server:
    """Gives its answers in order, the last one for ever; the clock moves when somebody waits."""

    def __init__(self, *answers, budget=300.0):
        self.answers, self.asked, self.waits, self.now, self.renewed = list(answers), 0, [], 0.0, 0
        self.calls = ClusterCalls(
            Connections(lambda: self.connect()), budget, lambda: self.now, self.pause
        )

    def connect(self):
        self.renewed += 1
        return SimpleNamespace(configuration=SimpleNamespace(host="https://c:6443"))

    def pause(self, seconds):
        self.waits.append(seconds)
        self.now += seconds

    def __call__(self, client):
        self.asked += 1
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, Exception):
            raise found
        return found

    def ask(self, look=None):
        return self.calls.ask("create Job x", self, look)

    def met(self):
        """Let it have answered once: it is reachable, and knows us."""
        self.calls.ask("list Jobs", lambda client: "known")
        return self


@pytest.mark.parametrize(
    "error",
    [
        answer(429),
        answer(500, "InternalError", "etcdserver: leader changed"),
        answer(502),
        answer(503),
        answer(504),
        RESET,
        UNREACHABLE,
        SILENT,
        ConfigException("Token file exists but empty."),
        json.JSONDecodeError("not JSON", "<html>", 0),
        answer(409, "Conflict", "Operation cannot be fulfilled on resourcequotas"),
    ],
    ids=lambda error: f"{type(error).__name__} {getattr(error, 'status', '')}",
)
def test_what_passes_is_waited_out(error):
    server = Server(error, error, error, "done")
    assert server.ask() == "done"
    assert server.asked == 4


def test_the_waits_grow_and_are_not_the_same_for_everybody():
    waits = []
    for _ in range(2):
        server = Server(*[RESET] * 9, "done").met()
        server.ask()
        waits.append(server.waits)
    assert waits[0] != waits[1]
    for row in waits:
        assert row[0] <= 0.25 and 7.5 <= row[-1] <= 15.0


def test_an_api_that_is_away_for_a_minute_is_waited_for():
    server = Server("done").met()
    began = server.now

    def away(client):
        if server.now - began < 60:
            raise UNREACHABLE
        return "done"

    assert server.calls.ask("list pods", away) == "done"
    assert 60 <= server.now - began < 80


def test_an_api_that_stays_away_is_told_when_the_budget_is_spent():
    server = Server(UNREACHABLE).met()
    with pytest.raises(ClusterAway, match=r"c:6443 could not create Job x: it cannot be reached"):
        server.ask()
    assert 280 <= server.now <= 300


def test_an_address_that_never_answered_is_told_soon():
    server = Server(UNREACHABLE)
    with pytest.raises(ClusterAway, match="KUBECONFIG"):
        server.ask()
    assert server.now <= FIRST_CONTACT_SECONDS


def test_a_server_that_asks_for_a_pause_gets_it():
    server = Server(answer(429, headers={"Retry-After": "7"}), "done")
    server.ask()
    assert server.waits == [7.0]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (answer(403, "Forbidden", 'User "u" cannot create resource "jobs"'), "Bind the Role"),
        (
            answer(403, "Forbidden", 'User "system:anonymous" cannot'),
            "token or certificate is missing",
        ),
        (answer(403, "Forbidden", "exceeded quota: team, used: 8"), "quota of the namespace"),
        (answer(403, "Forbidden", "namespace x: it is being terminated"), "being deleted"),
        (answer(404, "NotFound", 'namespaces "x" not found'), "ML_ASSETS_NAMESPACE"),
        (answer(409, "AlreadyExists", 'jobs.batch "x" already exists'), "there already"),
        (answer(400, "BadRequest", "admission webhook denied the request"), "webhook"),
        (answer(422, "Invalid", "spec.template.spec.containers[0].resources"), "not valid"),
        (answer(418, "", "I am a teapot"), "server's log"),
    ],
)
def test_a_refusal_is_never_repeated_and_says_what_to_do(error, says):
    server = Server(error)
    with pytest.raises(ClusterRefused, match=says) as refused:
        server.ask()
    assert (server.asked, server.waits) == (1, [])
    assert refused.value.status == error.status
    assert str(json.loads(error.body)["message"]) in str(refused.value)


def test_a_certificate_that_is_not_trusted_is_told_at_once():
    text = (
        "SSLError\n[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get"
        " local issuer certificate (_ssl.c:1006)"
    )
    server = Server(ApiException(status=0, reason=text))
    with pytest.raises(ClusterRefused, match="certificate-authority") as refused:
        server.ask()
    assert "unable to get local issuer certificate" in str(refused.value)
    assert server.asked == 1


def test_a_handshake_that_broke_off_is_tried_again():
    assert Server(ApiException(status=0, reason="SSLError\nEOF occurred"), "done").ask() == "done"


def test_an_expired_token_is_read_again_once_for_each_failure():
    server = Server(EXPIRED, "done", EXPIRED, "done")
    assert (server.ask(), server.ask()) == ("done", "done")
    assert (server.renewed, server.waits) == (3, [])


def test_a_token_that_was_never_good_is_told_at_once():
    server = Server(EXPIRED)
    with pytest.raises(AccessRefused, match="token or certificate is missing, wrong or expired"):
        server.ask()
    assert (server.asked, server.renewed, server.waits) == (2, 2, [])


def test_a_token_that_was_good_is_waited_for():
    server = Server(*[EXPIRED] * 6, "done").met()
    assert server.ask() == "done"
    assert len(server.waits) == 3


def test_a_configuration_that_is_being_written_when_the_token_expired_is_read_later():
    server = Server(EXPIRED, "done").met()
    good, broken = server.connect, [SettingsError("The configuration is empty.")]

    def connect():
        if broken:
            raise broken.pop()
        return good()

    server.connect, server.answers = connect, [EXPIRED, EXPIRED, "done"]
    assert server.ask() == "done"
    assert len(server.waits) == 1


# --- calls that must be done once -----------------------------------------------------------------


@pytest.mark.parametrize("error", [RESET, SILENT, answer(500), answer(504)])
def test_a_create_whose_answer_was_lost_is_looked_for_before_it_is_repeated(error):
    server = Server(error)
    assert server.ask(look=lambda client: "found") == "found"
    assert server.asked == 1


def test_a_create_that_was_not_done_is_repeated():
    server = Server(RESET, "created")
    assert server.ask(look=lambda client: None) == "created"
    assert server.asked == 2


def test_a_look_that_fails_too_is_repeated_not_the_create():
    server, looks = Server(RESET).met(), [UNREACHABLE, answer(503), "found"]

    def look(client):
        found = looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    assert server.ask(look) == "found"
    assert server.asked == 1


@pytest.mark.parametrize("error", [UNREACHABLE, answer(429), answer(503)])
def test_a_create_that_was_surely_not_done_is_not_looked_for(error):
    def look(client):
        raise AssertionError("nothing to look for")

    assert Server(error, "created").ask(look) == "created"


def test_asked_once_is_asked_once():
    server = Server(answer(503, headers={"Retry-After": "9"}), "done")
    with pytest.raises(NoAnswer) as lost:
        server.calls.once("list pods", server)
    assert (server.asked, lost.value.trouble.wait, server.waits) == (1, 9.0, [])


def test_an_error_that_is_not_the_clusters_is_not_hidden():
    assert trouble_of(KeyError("metadata")) is None
    with pytest.raises(KeyError):
        Server(KeyError("metadata")).ask()


@pytest.mark.parametrize(("code", "kind"), [(410, ClusterRefused), (500, NoAnswer), (0, NoAnswer)])
def test_a_status_in_the_midst_of_a_watch_is_what_it_would_be_as_an_answer(code, kind):
    assert isinstance(told_by({"code": code, "reason": "Expired", "message": "old"}), kind)
