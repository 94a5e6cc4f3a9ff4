"""The tests' lakeFS as lakefs-client sees it: repositories, refs, objects, staging."""

import io
from collections.abc import Callable, Iterator

import pytest
from lakefs_client import ApiException, models
from lakefs_client.client import LakeFSClient

from ml_assets_tests.storage.lakefs_clients import rest_client
from ml_assets_tests.storage.lakefs_server import LakeFSServer, lakefs_server

REPO = "demo"


@pytest.fixture
def server() -> Iterator[LakeFSServer]:
    with lakefs_server() as server:
        server.create_repository(REPO)
        yield server


@pytest.fixture
def client(server: LakeFSServer) -> LakeFSClient:
    return rest_client(server)


def refused(call: Callable[..., object], *arguments: object, **named: object) -> int:
    """The status of a call that must not work."""
    with pytest.raises(ApiException) as caught:
        call(*arguments, **named)
    return caught.value.status


class Content(io.BytesIO):
    """The client asks a file for its name."""

    name = "content"


def put(client: LakeFSClient, branch: str, **files: str) -> None:
    for path, text in files.items():
        content = Content(text.encode())
        client.objects_api.upload_object(REPO, branch, path, content=content)


def commit(client: LakeFSClient, branch: str, message: str = "m", **files: str) -> str:
    put(client, branch, **files)
    made = client.commits_api.commit(REPO, branch, models.CommitCreation(message))
    return made.id


def branch(client: LakeFSClient, name: str, source: str = "main", **more: object) -> str:
    client.branches_api.create_branch(REPO, models.BranchCreation(name, source, **more))
    return name


def read(client: LakeFSClient, reference: str, path: str) -> bytes:
    answer = client.objects_api.get_object(REPO, reference, path, _preload_content=False)
    return answer.data


def paths(client: LakeFSClient, reference: str, **more: object) -> list[str]:
    return [each.path for each in client.objects_api.list_objects(REPO, reference, **more).results]


# --- walk -----------------------------------------------------------------------------------------


def test_a_branch_is_uploaded_to_committed_and_merged(client: LakeFSClient) -> None:
    branch(client, "work")
    made = commit(client, "work", "week 1", **{"t/a.txt": "one"})
    result = client.refs_api.merge_into_branch(REPO, "work", "main")
    assert read(client, "main", "t/a.txt") == b"one"
    head = client.branches_api.get_branch(REPO, "main").commit_id
    assert head == result.reference
    assert client.commits_api.get_commit(REPO, head).parents[1] == made
