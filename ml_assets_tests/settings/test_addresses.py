"""The place of a database is what its driver connects to, and holds no secret."""

from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import exc, make_url

from ml_assets.errors import SettingsError
from ml_assets.settings import read_lakefs, read_settings
from ml_assets.settings.addresses import _URL, database_place, password_forms, without_secrets

HONEST = "postgresql://shop.example:5432/shop"
ELSEWHERE = [
    "postgresql://evil.example:5432/shop",
    "postgresql://shop.example:6666/shop",
    "postgresql://shop.example:5432/evil",
    f"{HONEST}?host=evil.example",
    f"{HONEST}?hostaddr=10.0.0.66",
    f"{HONEST}?dbname=evil",
    f"{HONEST}?port=6666",
    f"{HONEST}?service=evil",
    f"{HONEST}?options=-csearch_path=evil",
    f"{HONEST}?options=-c%20search_path%3Devil%20-c%20role%3Dx",
    f"{HONEST}?whatever=else",
    f"{HONEST}#x",
    "postgresql://ann:w@shop.example@evil.example:5432/shop",
]


@pytest.mark.parametrize("url", ELSEWHERE)
def test_what_leads_a_driver_elsewhere_is_another_place(url: str) -> None:
    assert database_place(url, {}) != database_place(HONEST, {}) == HONEST


def test_so_does_a_variable_that_postgres_reads() -> None:
    for name in ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE", "PGOPTIONS"):
        assert database_place(HONEST, {name: "else"}) != HONEST
    assert database_place("mysql://h/db", {"PGHOST": "else"}) == "mysql://h/db"


def test_a_file_is_its_absolute_path_and_what_follows_is_a_part_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = f"sqlite:///{tmp_path / 'honest.db'}"
    assert database_place(honest) == honest
    assert database_place(f"{honest}#x") == f"{honest}#x"
    monkeypatch.chdir(tmp_path)
    assert database_place("sqlite:///honest.db") == honest
    (tmp_path / "link.db").symlink_to(tmp_path / "honest.db")
    assert database_place("sqlite:///link.db") == honest
    uri = database_place("sqlite:///file:honest.db?uri=true&mode=ro")
    assert uri.startswith(f"sqlite:///file:{tmp_path / 'honest.db'}?mode=sha256:")
    assert database_place("sqlite://") == "sqlite:///"
    assert database_place("duckdb:///link.db") == f"duckdb:///{tmp_path / 'honest.db'}"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hush@shop.example:5432/shop",
        "postgresql+psycopg://ann:hu/sh@shop.example:5432/shop?password=hush&user=ann",
        f"{HONEST}?sslpassword=hush&passwd=hush&token=hush&api_key=hush&secret=hush",
    ],
)
def test_who_connects_is_no_other_place(url: str) -> None:
    assert database_place(url, {}) == HONEST


@pytest.mark.parametrize(
    "password", ["hu/sh", "hu#sh", "hu?sh", "hu sh", "hu@sh", "/hush", "[hush"]
)
def test_a_password_is_shown_in_no_address(password: str) -> None:
    url = f"postgresql://ann:{password}@shop.example:5432/shop?sslmode=require"
    assert without_secrets(url) == HONEST
    assert password in password_forms(url)


@pytest.mark.parametrize(
    "url",
    ["http://shop.example:5000/team@shop", "s3://bucket/a:b@c", "sqlite:////a/b:c@d.db", "/a:b@c"],
)
def test_what_holds_no_password_is_shown_whole(url: str) -> None:
    assert without_secrets(url) == url
    assert password_forms(url) == ()


@pytest.mark.parametrize("value", ["http://[evil", "http://h:port", "http://h:99999"])
@pytest.mark.parametrize(
    "name", ["ML_ASSETS_UI_URL", "MLFLOW_TRACKING_URI", "ML_ASSETS_ONLINE", "ML_ASSETS_OBJECTS"]
)
def test_what_cannot_be_read_as_an_address_is_a_sentence(
    tmp_path: Path, name: str, value: str
) -> None:
    with pytest.raises(SettingsError, match=f"{name} holds no address") as refused:
        read_settings({"ML_ASSETS_HOME": str(tmp_path), name: value})
    assert value in str(refused.value)


def test_no_password_is_told_of_an_address_that_cannot_be_read(tmp_path: Path) -> None:
    wrong = {"ML_ASSETS_HOME": str(tmp_path), "MLFLOW_TRACKING_URI": "http://ann:hush@[evil"}
    with pytest.raises(SettingsError, match="MLFLOW_TRACKING_URI") as refused:
        read_settings(wrong)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("password", ["x@hush", "hush@hush", "hush@x/hush", "hush@hush/x"])
def test_a_password_with_an_at_sign_is_shown_in_no_place(password: str) -> None:
    place = database_place(f"postgresql://ann:{password}@shop.example:5432/shop", {})
    assert "hush" not in place and place.endswith("shop.example:5432/shop")


def test_what_is_not_known_is_kept_as_a_digest_alone() -> None:
    said = database_place(f"{HONEST}?sslmode=hush", {})
    assert "hush" not in said and said.startswith(f"{HONEST}?sslmode=sha256:")
    odbc = "mssql+pyodbc:///?odbc_connect=SERVER%3Dshop%3BUID%3Dann%3BPWD%3Dhush%3BDATABASE%3Dx"
    assert database_place(odbc) == "mssql:///?DATABASE=x&SERVER=shop"


@pytest.mark.parametrize(
    ("spellings", "one"),
    [
        (("http://host/", "HTTP://Host", "http://host:80/api/v1/"), "http://host"),
        (("https://HOST:443/sub/", "https://host/sub"), "https://host/sub"),
        (("http://[::1]:8000//api/v1", "http://[::1]:8000"), "http://[::1]:8000"),
    ],
)
def test_a_lakefs_server_has_one_address_however_it_is_written(
    spellings: tuple[str, ...], one: str
) -> None:
    keys = {"LAKEFS_ACCESS_KEY_ID": "a", "LAKEFS_SECRET_ACCESS_KEY": "b"}
    for written in spellings:
        found = read_lakefs({"LAKEFS_ENDPOINT": written, **keys})
        assert (found.endpoint, found.s3_endpoint) == (one, one)
        moved = {"LAKEFS_ENDPOINT": "http://other", "LAKEFS_S3_ENDPOINT": written, **keys}
        assert read_lakefs(moved).s3_endpoint.removesuffix("/api/v1").rstrip("/") == one


def test_what_is_no_url_is_no_place() -> None:
    assert database_place("hush") == "no database URL"


PART = st.text("ab@:/[]#?%&=+.-1", max_size=8)


@given(PART, PART, PART, PART)
@example("", "@[1]", "", "")
@example("", "", "", "%11")
def test_the_url_is_split_where_sqlalchemy_splits_it(a: str, b: str, c: str, d: str) -> None:
    url = f"postgresql://{a}:{b}@{c}/{d}"
    ours = _URL.match(url)
    try:
        theirs = make_url(url)
    except (exc.ArgumentError, ValueError):
        return
    assert ours is not None
    assert (ours["ipv6"] or ours["host"]) == theirs.host
    assert (int(ours["port"]) if ours["port"] else None) == theirs.port
    assert unquote(ours["database"] or "") == (theirs.database or "")
