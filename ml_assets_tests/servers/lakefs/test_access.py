"""The tests' lakeFS: setup, login, its one user, and what is asked without a repository."""

import json
import urllib.request
from typing import Any
from urllib.error import HTTPError

import lakefs_sdk
import pytest
from lakefs_sdk import exceptions

from ml_assets_tests.servers.lakefs import LakeFSServer
from ml_assets_tests.servers.lakefs.clients import sdk_client


def login(server: LakeFSServer, secret: str) -> lakefs_sdk.AuthenticationToken:
    anybody = lakefs_sdk.ApiClient(lakefs_sdk.Configuration(host=f"{server.endpoint}/api/v1"))
    said = lakefs_sdk.LoginInformation(access_key_id=server.access_key, secret_access_key=secret)
    return lakefs_sdk.AuthApi(anybody).login(said)


def bearer(server: LakeFSServer, token: str) -> lakefs_sdk.ApiClient:
    settings = lakefs_sdk.Configuration(host=f"{server.endpoint}/api/v1", access_token=token)
    return lakefs_sdk.ApiClient(settings)


def user_of(client: lakefs_sdk.ApiClient) -> str:
    return lakefs_sdk.AuthApi(client).get_current_user().user.id


def test_who_logs_in_gets_a_token_that_stands_for_the_keys(server: LakeFSServer) -> None:
    found = login(server, server.secret_key)
    assert user_of(bearer(server, found.token)) == user_of(sdk_client(server)) == "admin"
    with pytest.raises(exceptions.UnauthorizedException, match="error authenticating request"):
        login(server, "wrong")


def test_a_token_that_was_altered_or_is_too_old_is_refused(server: LakeFSServer) -> None:
    found = login(server, server.secret_key)
    head, claims, signature = found.token.split(".")
    for token in (f"{head}.{claims[::-1]}.{signature}", f"{head}.{claims}.", "nothing", ""):
        with pytest.raises(exceptions.UnauthorizedException):
            user_of(bearer(server, token))
    assert found.token_expiration
    before, server.catalog.clock = server.catalog.clock, lambda: found.token_expiration + 1.0
    try:
        with pytest.raises(exceptions.UnauthorizedException):
            user_of(bearer(server, found.token))
    finally:
        server.catalog.clock = before


def ask(server: LakeFSServer, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    """Of somebody without keys."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"{server.endpoint}/api/v1{path}", data, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except HTTPError as refused:
        return refused.code, json.load(refused)


def test_it_is_set_up_already_and_says_so_to_anybody(server: LakeFSServer) -> None:
    status, found = ask(server, "/setup_lakefs")
    assert (status, found["state"], found["comm_prefs_missing"]) == (200, "initialized", False)
    again = ask(server, "/setup_lakefs", {"username": "me"})
    assert again == (409, {"message": "lakeFS already initialized"})
    assert ask(server, "/setup_lakefs", {"username": ""})[0] == 400
    assert ask(server, "/user") == (401, {"message": "error authenticating request"})


def test_it_has_one_user_and_no_groups(server: LakeFSServer) -> None:
    users = lakefs_sdk.AuthApi(sdk_client(server))
    assert [user.id for user in users.list_users().results] == ["admin"]
    assert users.get_user("admin").id == "admin"
    with pytest.raises(exceptions.NotFoundException):
        users.get_user("jane")
    with pytest.raises(exceptions.ServiceException) as refused:
        users.list_groups()
    assert refused.value.status == 501


def test_statistics_are_taken_and_held_to_their_form(server: LakeFSServer) -> None:
    api = lakefs_sdk.InternalApi(sdk_client(server))
    event = {"class": "c", "name": "n", "count": 1}
    api.post_stats_events(lakefs_sdk.StatsEventsList.from_dict({"events": [event]}))
    nameless = lakefs_sdk.StatsEventsList.from_dict({"events": [{**event, "name": ""}]})
    with pytest.raises(exceptions.BadRequestException, match="name is required"):
        api.post_stats_events(nameless)
