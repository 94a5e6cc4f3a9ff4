"""The tests' lakeFS takes in objects that lie elsewhere: imports in the background, staged ones."""

from collections.abc import Iterator
from datetime import timedelta

import lakefs
import pytest
from lakefs.client import Client
from lakefs.exceptions import ConflictException, ForbiddenException, ImportManagerException
from lakefs_client import models

from ml_assets_tests.servers.lakefs import LakeFSServer, Setup, lakefs_server
from ml_assets_tests.servers.lakefs.clients import Demo

BUCKET = "s3://elsewhere/"
SOON = timedelta(milliseconds=20)


@pytest.fixture
def server() -> Iterator[LakeFSServer]:
    """A bucket of others lies in the same object store."""
    with lakefs_server() as server:
        for name in ("a/1", "a/2", "b/1"):
            server.catalog.store.put_at(BUCKET + name, name.encode())
        yield server


@pytest.fixture
def demo(server: LakeFSServer) -> Demo:
    return Demo(server)


def branch_of(demo: Demo) -> lakefs.Branch:
    server = demo.server
    client = Client(host=server.endpoint, username=server.access_key, password=server.secret_key)
    return lakefs.Repository(demo.repo, client).branch("main")


def test_an_import_takes_the_place_of_what_lies_there_in_one_commit(demo: Demo) -> None:
    demo.commit("main", {"in/a/old": "x", "kept": "x"})
    wish = branch_of(demo).import_data("taken in", {"from": "elsewhere"})
    wish.prefix(f"{BUCKET}a/", "in/a/").object(f"{BUCKET}b/1", "in/one")
    done = wish.run(SOON)
    assert (done.completed, done.error, done.ingested_objects) == (True, None, 3)
    assert demo.seen("main") == {"in/a/1": "a/1", "in/a/2": "a/2", "in/one": "b/1", "kept": "x"}
    commit = branch_of(demo).get_commit()
    assert done.commit
    assert (commit.id, commit.message) == (done.commit.id, "taken in")
    assert commit.metadata["from"] == "elsewhere"
    with pytest.raises(ConflictException):
        wish.cancel()


def test_an_import_of_nothing_is_a_commit_all_the_same(demo: Demo) -> None:
    assert branch_of(demo).import_data("nothing").run(SOON).ingested_objects == 0
    assert demo.log() == ["nothing", "Repository created"]


def test_an_import_that_is_cancelled_changes_nothing(demo: Demo) -> None:
    imports = demo.server.catalog.imports
    imports.may_go_on.clear()
    wish = branch_of(demo).import_data("taken in").prefix(BUCKET, "in/")
    wish.start()
    wish.cancel()
    imports.may_go_on.set()
    status = wish.status()
    assert not status.completed
    assert status.error
    assert status.error.message == "Canceled"
    assert demo.paths("main") == []


def test_a_dirty_branch_and_the_repositorys_own_storage_are_refused(demo: Demo) -> None:
    demo.put("main", {"staged": "x"})
    with pytest.raises(ImportManagerException, match="dirty branch"):
        branch_of(demo).import_data("m").prefix(BUCKET, "in/").run(SOON)
    with pytest.raises(lakefs.exceptions.BadRequestException, match="prohibited"):
        branch_of(demo).import_data("m").prefix("s3://tests/", "in/").start()


def test_a_store_that_cannot_import_says_so() -> None:
    with lakefs_server(Setup(blockstore="local")) as server, pytest.raises(ForbiddenException):
        branch_of(Demo(server)).import_data("m").start()


def test_an_object_of_elsewhere_is_staged_by_its_address(demo: Demo) -> None:
    def wish(address: str) -> models.ObjectStageCreation:
        return models.ObjectStageCreation(physical_address=address, checksum="c", size_bytes=3)

    stage = demo.client.internal_api.stage_object
    found = demo.ask(stage, "main", "linked", wish(f"{BUCKET}a/1"))
    assert (found.physical_address, found.checksum) == (f"{BUCKET}a/1", "c")
    assert demo.read("main", "linked") == "a/1"
    assert demo.refused(stage, "main", "linked", wish("gs://elsewhere/a"))[0] == 400
    assert demo.refused(stage, "nowhere", "linked", wish(f"{BUCKET}a/1"))[0] == 404


def test_who_may_upload_is_told_before(demo: Demo) -> None:
    assert demo.http("GET", "/branches/main/objects/stage_allowed?path=a").status == 204
