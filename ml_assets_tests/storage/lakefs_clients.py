"""The real clients that talk to the tests' lakeFS: lakefs-client, boto3, options for polars."""

from typing import Any

import boto3
from botocore.config import Config
from lakefs_client.client import LakeFSClient
from lakefs_client.configuration import Configuration

from ml_assets_tests.storage.lakefs_server import LakeFSServer


def rest_client(server: LakeFSServer, **settings: Any) -> LakeFSClient:
    account = {"username": server.access_key, "password": server.secret_key}
    return LakeFSClient(Configuration(host=f"{server.endpoint}/api/v1", **{**account, **settings}))


def s3_client(server: LakeFSServer, secret: str = "", **settings: Any) -> Any:
    return boto3.Session().client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=server.access_key,
        aws_secret_access_key=secret or server.secret_key,
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"},
            retries={"max_attempts": 1},
            **settings,
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
