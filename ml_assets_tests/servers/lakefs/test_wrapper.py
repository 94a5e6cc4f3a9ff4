"""The tests' lakeFS under lakeFS's own high-level Python client, which shares no code with ours."""

import time
from collections.abc import Iterator

import lakefs
import pytest
from lakefs.client import Client
from lakefs.exceptions import (
    ConflictException,
    NotFoundException,
    ObjectExistsException,
    TransactionException,
)

from ml_assets_tests.servers.lakefs import Setup, lakefs_server


@pytest.fixture(scope="module", params=["s3", "local"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """Presigned transfers, and such through the server."""
    with lakefs_server(Setup(blockstore=request.param)) as server:
        yield Client(host=server.endpoint, username=server.access_key, password=server.secret_key)


@pytest.fixture
def repository(client: Client) -> lakefs.Repository:
    name = f"demo-{time.monotonic_ns()}"
    namespace = f"{client.storage_config.blockstore_type}://tests/{name}"
    return lakefs.Repository(name, client).create(namespace)


def test_an_object_is_written_sought_in_and_written_once(repository: lakefs.Repository) -> None:
    one = repository.branch("main").object("a/b.txt")
    one.upload("first line\nsecond line\n", metadata={"k": "v"}, content_type="text/plain")
    with one.reader("r") as file:
        assert file.readline() == "first line\n"
        file.seek(6)
        assert file.read(4) == "line"
    stats = one.stat()
    assert (stats.metadata, stats.content_type, stats.size_bytes) == (
        {"k": "v"},
        "text/plain",
        23,
    )
    with pytest.raises(ObjectExistsException):
        one.upload("again", mode="x")
    one.delete()
    assert not one.exists()


def test_a_transaction_is_a_hidden_branch_and_one_merge(repository: lakefs.Repository) -> None:
    main = repository.branch("main")
    with main.transact(commit_message="both", commit_metadata={"k": "v"}, tag="v1") as tx:
        tx.object("a").upload("1")
        tx.object("b").upload("2")
        assert [each.id for each in repository.branches()] == ["main"]
        assert not main.object("a").exists()
    assert sorted(each.path for each in main.objects()) == ["a", "b"]
    messages = [each.message for each in main.log(max_amount=2)]
    assert messages == [f"Merge transaction {tx.id} to branch", "both"]
    assert repository.tag("v1").get_commit() == main.get_commit()
    with pytest.raises(NotFoundException):
        tx.get_commit()
    with pytest.raises(TransactionException, match="no changes"), main.transact("none"):
        pass


def test_a_conflict_and_a_taken_name_have_their_exceptions(repository: lakefs.Repository) -> None:
    main = repository.branch("main")
    work = repository.branch("work").create("main")
    for branch in (main, work):
        branch.object("a").upload(branch.id)
        branch.commit("m")
    with pytest.raises(ConflictException):
        work.merge_into(main)
    with pytest.raises(ConflictException):
        repository.branch("work").create("main")
    assert {each.path: each.type for each in main.diff(work)} == {"a": "conflict"}
