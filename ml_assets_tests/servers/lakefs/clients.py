"""The real clients that talk to the tests' lakeFS, and a repository seen through one of them."""

import io
import uuid
from collections.abc import Callable
from typing import Any

import boto3
import lakefs_sdk
import pytest
import urllib3
from botocore.config import Config
from lakefs_client import ApiException, models
from lakefs_client.client import LakeFSClient
from lakefs_client.configuration import Configuration

from ml_assets_tests.servers.lakefs import LakeFSServer


def rest_client(server: LakeFSServer, **settings: Any) -> LakeFSClient:
    account = {"username": server.access_key, "password": server.secret_key}
    return LakeFSClient(Configuration(host=f"{server.endpoint}/api/v1", **{**account, **settings}))


def sdk_client(server: LakeFSServer) -> lakefs_sdk.ApiClient:
    """The successor of lakefs-client: for what that one does not know."""
    account = {"username": server.access_key, "password": server.secret_key}
    settings = lakefs_sdk.Configuration(host=f"{server.endpoint}/api/v1", **account)
    return lakefs_sdk.ApiClient(settings)


def s3_client(
    server: LakeFSServer, secret: str = "", *, endpoint: str = "", **settings: Any
) -> Any:
    return boto3.Session().client(
        "s3",
        endpoint_url=endpoint or server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=server.access_key,
        aws_secret_access_key=secret or server.secret_key,
        config=Config(
            s3={"addressing_style": "path"},
            retries={"total_max_attempts": 1},
            **{"signature_version": "s3v4", **settings},
        ),
    )


def polars_options(server: LakeFSServer) -> dict[str, str]:
    return {
        "aws_endpoint_url": server.endpoint,
        "aws_access_key_id": server.access_key,
        "aws_secret_access_key": server.secret_key,
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
    }


class Content(io.BytesIO):
    """What lakefs-client uploads; it asks a file for its name."""

    name = "content"


class Demo:
    """An empty repository, through lakefs-client."""

    def __init__(self, server: LakeFSServer) -> None:
        self.server = server
        self.repo = f"demo-{uuid.uuid4().hex[:12]}"
        self.client = rest_client(server)
        server.create_repository(self.repo)

    def ask(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Calls a method of the client on this repository."""
        return call(self.repo, *arguments, **named)

    def refused(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[int, str]:
        """The status and the body of a call that must not work."""
        with pytest.raises(ApiException) as caught:
            call(self.repo, *arguments, **named)
        body = caught.value.body or ""
        return caught.value.status, body if isinstance(body, str) else body.decode()

    def http(self, method: str, path: str, **more: Any) -> urllib3.BaseHTTPResponse:
        """A bare request to ``path`` below the repository."""
        keys = f"{self.server.access_key}:{self.server.secret_key}"
        headers = {**urllib3.make_headers(basic_auth=keys), **more.pop("headers", {})}
        url = f"{self.server.endpoint}/api/v1/repositories/{self.repo}{path}"
        return urllib3.request(method, url, headers=headers, **more)

    def branch(self, name: str, source: str = "main", **more: Any) -> str:
        """Made; the commit that it points to comes back."""
        wish = models.BranchCreation(name, source, **more)
        return self.ask(self.client.branches_api.create_branch, wish)

    def put(self, branch: str, files: dict[str, str], **more: Any) -> None:
        for path, text in files.items():
            content = Content(text.encode())
            self.ask(self.client.objects_api.upload_object, branch, path, content=content, **more)

    def commit(
        self, branch: str, files: dict[str, str] | None = None, message: str = "m", **more: Any
    ) -> str:
        self.put(branch, files or {})
        wish = models.CommitCreation(message, **more)
        return self.ask(self.client.commits_api.commit, branch, wish).id

    def merge(self, source: str, branch: str, **more: Any) -> str:
        call = self.client.refs_api.merge_into_branch
        return self.ask(call, source, branch, merge=models.Merge(**more)).reference

    def tag(self, name: str, reference: str) -> None:
        self.ask(self.client.tags_api.create_tag, models.TagCreation(name, reference))

    def head(self, branch: str = "main") -> str:
        return self.ask(self.client.branches_api.get_branch, branch).commit_id

    def read(self, reference: str, path: str, **more: Any) -> str:
        call = self.client.objects_api.get_object
        return self.ask(call, reference, path, _preload_content=False, **more).data.decode()

    def paths(self, reference: str, **more: Any) -> list[str]:
        found = self.ask(self.client.objects_api.list_objects, reference, **more)
        return [each.path for each in found.results]

    def seen(self, reference: str) -> dict[str, str]:
        """Everything at a reference."""
        return {path: self.read(reference, path) for path in self.paths(reference)}

    def log(self, reference: str = "main", **more: Any) -> list[str]:
        """Messages, the youngest first."""
        found = self.ask(self.client.refs_api.log_commits, reference, **more)
        return [each.message for each in found.results]

    def diff(self, left: str, right: str, **more: Any) -> dict[str, str]:
        found = self.ask(self.client.refs_api.diff_refs, left, right, **more)
        return {each.path: each.type for each in found.results}
