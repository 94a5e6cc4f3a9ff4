"""REST: who the caller is: setup, login, the one user of a lakeFS without access control."""

import hmac
from typing import Any

from ml_assets_tests.servers.lakefs import tokens
from ml_assets_tests.servers.lakefs.catalog import Catalog
from ml_assets_tests.servers.lakefs.exchange import Request, Response, as_json
from ml_assets_tests.servers.lakefs.listing import shown
from ml_assets_tests.servers.lakefs.refusals import (
    Conflict,
    Invalid,
    Missing,
    NotImplementedHere,
    Unauthorized,
)
from ml_assets_tests.servers.lakefs.rest_routes import empty, optional, route

_USERS = "/auth/users"


@route("GET", "/setup_lakefs")
def setup_state(catalog: Catalog, request: Request) -> Response:
    login = {
        "RBAC": "none",
        "login_url": "",
        "login_url_method": "none",
        "login_failed_message": "The credentials don't match.",
        "login_cookie_names": ["internal_auth_session"],
        "logout_url": "/logout",
    }
    return as_json({"state": "initialized", "comm_prefs_missing": False, "login_config": login})


@route("POST", "/setup_lakefs")
def setup(catalog: Catalog, request: Request) -> Response:
    if not request.json(username=str)["username"]:
        raise Invalid("empty user display name")
    raise Conflict("lakeFS already initialized")


@route("POST", "/setup_comm_prefs")
def setup_communication(catalog: Catalog, request: Request) -> Response:
    raise Conflict("communication preferences already set")


@route("POST", "/auth/login")
def login(catalog: Catalog, request: Request) -> Response:
    body, known = request.json(access_key_id=str, secret_access_key=str), catalog.setup
    said = f"{body['access_key_id']}:{body['secret_access_key']}".encode()
    if not hmac.compare_digest(said, f"{known.access_key}:{known.secret_key}".encode()):
        raise Unauthorized
    token, expires = tokens.issue(known.secret_key, known.user, int(catalog.clock()))
    return as_json({"token": token, "token_expiration": expires})


@route("GET", "/user")
def current_user(catalog: Catalog, request: Request) -> Response:
    return as_json({"user": _user(catalog)})


@route("GET", "/auth/capabilities")
def capabilities(catalog: Catalog, request: Request) -> Response:
    return as_json({"invite_user": False})


@route("GET", _USERS)
def list_users(catalog: Catalog, request: Request) -> Response:
    return as_json(shown([_user(catalog)], 1, lambda user: user, lambda user: user["id"]))


@route("GET", _USERS + "/{user}")
def get_user(catalog: Catalog, request: Request, user: str) -> Response:
    if user != catalog.setup.user:
        raise Missing("user")
    return as_json(_user(catalog))


@route("GET", _USERS + "/{user}/credentials")
@route("POST", _USERS + "/{user}/credentials")
@route("GET", "/auth/groups")
@route("GET", "/auth/policies")
def beyond_one_user(catalog: Catalog, request: Request, **_: str) -> Response:
    """Groups, policies and more keys need a server of access control beside lakeFS."""
    raise NotImplementedHere


@route("POST", "/statistics")
def statistics(catalog: Catalog, request: Request) -> Response:
    for event in request.json(events=list)["events"]:
        for name in ("class", "name"):
            if not optional(event, name, ""):
                raise Invalid(f"invalid value: {name} is required")
        if optional(event, "count", 0) < 0:
            raise Invalid("invalid value: count must be a non-negative integer")
    return empty()


def _user(catalog: Catalog) -> dict[str, Any]:
    name = catalog.setup.user
    return {"id": name, "creation_date": 0, "friendly_name": name}
