"""The place of a database is what its driver connects to, and holds no secret."""

from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import exc, make_url

from ml_assets.settings.addresses import _URL, database_place

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


def test_what_is_not_known_is_kept_as_a_digest_alone() -> None:
    said = database_place(f"{HONEST}?sslmode=hush", {})
    assert "hush" not in said and said.startswith(f"{HONEST}?sslmode=sha256:")
    odbc = "mssql+pyodbc:///?odbc_connect=SERVER%3Dshop%3BUID%3Dann%3BPWD%3Dhush%3BDATABASE%3Dx"
    assert database_place(odbc) == "mssql:///?DATABASE=x&SERVER=shop"


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
