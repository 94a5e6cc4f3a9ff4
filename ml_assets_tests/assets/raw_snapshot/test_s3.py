"""Sources in a bucket: listed, read as they were listed, and refused with what to do."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ml_assets.assets.raw_snapshot.readers.read_source import (
    Seen,
    origin_of,
    read_source,
    receipt_of,
)
from ml_assets.errors import SourceError
from ml_assets_tests.assets.raw_snapshot.delivering import (
    COLUMNS,
    FIRST,
    NOW,
    WEEKS,
    files,
    looked,
    no_sql,
    refusal,
    rows,
    stream,
)
from ml_assets_tests.launch.staging.pods import wait_for
from ml_assets_tests.servers.s3 import BUCKET, SECRET, S3Server, s3_server

NOWHERE = Path("/nowhere")
BASE = f"s3://{BUCKET}/lake"


@pytest.fixture(scope="module")
def one_server() -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
        with s3_server(environment) as server:
            yield server


@pytest.fixture
def server(one_server: S3Server) -> S3Server:
    one_server.faults.failing = 0
    for key in one_server.everything():
        one_server.client.delete_object(Bucket=BUCKET, Key=key)
    return one_server


def put_all(server: S3Server, contents: dict[str, str]) -> None:
    client = server.client
    for key, text in contents.items():
        client.put_object(Bucket=BUCKET, Key=f"lake/{key}", Body=text.encode())


ORDERS = files(path=f"{BASE}/orders/{{partition}}/*.csv")


def test_a_partition_is_the_objects_that_its_path_stands_for(server: S3Server):
    put_all(
        server,
        {
            "orders/2024-01-01/a.csv": "order,shop\n1,north\n",
            "orders/2024-01-01/b.csv": "order,shop\n2,south\n",
            "orders/2024-01-01/deeper/c.csv": "order,shop\n3,west\n",
            "orders/2024-01-08/a.csv": "order,shop\n4,west\n",
            "orders/2024-01-08.csv": "something else",
        },
    )
    assert rows(NOWHERE, ORDERS) == [(1, "north"), (2, "south")]
    found = looked(NOWHERE, ORDERS)
    assert found.keys == ("2024-01-01", "2024-01-08"), "an object appears whole: none is left"
    assert found.receipt("2024-01-01") == receipt_of("orders", ORDERS, NOWHERE, no_sql, FIRST)


def test_a_receipt_is_taken_without_reading_an_object(server: S3Server, tmp_path: Path):
    put_all(server, {"orders/2024-01-01/a.csv": "order,shop\n1,north\n"})
    server.faults.requests.clear()
    seen = Seen(tmp_path / "seen.db")
    first = looked(NOWHERE, ORDERS, seen=seen).receipt("2024-01-01")
    assert {path for method, path in server.faults.requests if "list-type" not in path} == set()
    assert first == read_source("orders", ORDERS, NOWHERE, no_sql, FIRST).receipt
    put_all(server, {"orders/2024-01-01/a.csv": "order,shop\n1,south\n"})
    assert looked(NOWHERE, ORDERS, seen=seen).receipt("2024-01-01") != first


def test_a_receipt_names_the_server_and_the_region_as_boto3_finds_them(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put_all(server, {"orders/2024-01-01/a.csv": "order,shop\n1,north\n"})
    said = receipt_of("orders", ORDERS, NOWHERE, no_sql, WEEKS[0])["source"]
    assert said.startswith(f"{BASE}/orders/{{partition}}/*.csv at http://127.0.0.1:")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert origin_of(ORDERS, NOWHERE, no_sql).endswith(" (eu-north-1)")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    config = tmp_path / "config"
    config.write_text("[default]\nendpoint_url = http://ann:hush@evil.example:9000\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    assert origin_of(ORDERS, NOWHERE, no_sql).endswith(" at http://evil.example:9000 (eu-north-1)")


def test_a_stream_and_references_lie_in_a_bucket_as_well(server: S3Server):
    put_all(
        server,
        {
            "arrivals/2024-01-01/1.jsonl": '{"offset": 1, "order": 2, "at": null}\n',
            "arrivals/2024-01-01/0.jsonl": '{"offset": 0, "order": 1, "at": null}\n',
            "images/left/1.jpg": "abc",
        },
    )
    arrivals = stream(path=f"{BASE}/arrivals/{{partition}}/*.jsonl")
    assert rows(NOWHERE, arrivals) == [(1, None), (2, None)]
    columns = {"path": "string", "bytes": "int64", "camera": "string", "sha256": "string"}
    images = files(
        path=f"{BASE}/images/{{camera}}/*.jpg",
        format="binary",
        partitioned=False,
        columns=columns,
        key=["path"],
    )
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert rows(NOWHERE, images, None) == [(f"{BASE}/images/left/1.jpg", 3, "left", digest)]


def test_versions_of_a_table_lie_in_a_bucket_as_well(server: S3Server):
    put_all(server, {"shops/2024-01-03.csv": "order,shop\n1,north\n"})
    shops = files(path=f"{BASE}/shops/{{version}}.csv", columns=COLUMNS)
    assert looked(NOWHERE, shops).keys == ("2024-01-08", "2024-01-15")
    assert rows(NOWHERE, shops, WEEKS[1]) == [(1, "north")]


def test_an_object_whose_name_leads_elsewhere_is_not_taken(server: S3Server):
    row = "order,shop\n1,north\n"
    for climbing in ("2024-01-01/../../x.csv", "2024-01-01//x.csv", "../2024-01-01/x.csv"):
        put_all(server, {f"orders/{climbing}": row})
    deep = files(path=f"{BASE}/orders/{{partition}}/**/*.csv")
    assert looked(NOWHERE, deep).keys == ()
    put_all(server, {"orders/2024-01-01/..\\x.csv": row, "orders/2024-01-08/x\\..\\y.csv": row})
    found = looked(NOWHERE, deep)
    assert found.keys == ("2024-01-08",)
    with pytest.raises(SourceError, match="is not a safe path"):
        found.receipt("2024-01-08")
    assert "is not a safe path" in refusal(NOWHERE, deep, WEEKS[1])


def test_a_folder_that_a_console_made_is_no_object(server: S3Server):
    put_all(server, {"orders/2024-01-01/": "", "orders/2024-01-01/a": "order,shop\n1,north\n"})
    found = files(path=f"{BASE}/orders/{{partition}}/*", columns=COLUMNS)
    assert looked(NOWHERE, found).keys == ("2024-01-01",)
    assert rows(NOWHERE, found, WEEKS[0]) == [(1, "north")]


def test_an_object_that_was_replaced_after_it_was_listed_is_refused(server: S3Server):
    put_all(server, {"images/1.jpg": "abc"})
    from ml_assets.assets.raw_snapshot.readers.pattern import pattern_of
    from ml_assets.assets.raw_snapshot.readers.places import digest, place_of

    pattern = pattern_of(f"{BASE}/images/*.jpg")
    place = place_of("images", pattern, NOWHERE)
    (found,) = place.list(pattern)
    put_all(server, {"images/1.jpg": "abd"})
    with pytest.raises(SourceError, match="it was replaced meanwhile"):
        digest(place, found)


def test_what_a_bucket_refuses_is_told_without_a_secret(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
):
    elsewhere = files(path="s3://no-such-bucket/{partition}.csv")
    assert "there is no such bucket" in refusal(NOWHERE, elsewhere)
    assert "no file matches" in refusal(NOWHERE, ORDERS)
    monkeypatch.setattr("ml_assets.store.s3.client.TRIES", 1)
    server.faults.failing = -1
    said = refusal(NOWHERE, ORDERS)
    assert "it answered" in said
    assert SECRET not in said


def test_many_objects_are_listed_page_by_page(server: S3Server):
    for number in range(25):
        put_all(server, {f"images/{number:02}.jpg": "x"})
    images = files(
        path=f"{BASE}/images/{{number}}.jpg",
        format="binary",
        partitioned=False,
        columns={"path": "string", "number": "int64"},
        key=["path"],
    )
    found = read_source("images", images, NOWHERE, no_sql, None)
    assert found.frame["number"].to_list() == list(range(25))
    assert found.receipt == looked(NOWHERE, images, None, now=NOW).receipt(None)


def test_large_folders_are_listed_side_by_side_in_the_order_of_their_keys(server: S3Server):
    for folder in ("x-1", "x", "y"):  # "x-1/" comes before "x/"
        put_all(server, {f"cams/{folder}/{number:02}.jpg": "x" for number in range(12)})
    put_all(server, {"cams/00.jpg": "in no folder"})
    images = files(
        path=f"{BASE}/cams/{{camera}}/*.jpg",
        format="binary",
        partitioned=False,
        columns={"path": "string", "camera": "string"},
        key=["path"],
    )
    server.faults.requests.clear()
    server.faults.held, server.faults.at = threading.Event(), "prefix=lake%2Fcams%2Fx"
    server.faults.failing = 2  # of x-1 and of x: neither is answered before both are asked
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(read_source, "images", images, NOWHERE, no_sql, None)
        wait_for(lambda: sum(server.faults.at in path for _, path in server.faults.requests) == 2)
        server.faults.held.set()
        found = reading.result()
    keys = sorted(key for key in server.everything() if key.count("/") == 3)
    assert found.frame["path"].to_list() == [f"s3://{BUCKET}/{key}" for key in keys]
    assert found.frame["camera"].unique(maintain_order=True).to_list() == ["x-1", "x", "y"]
