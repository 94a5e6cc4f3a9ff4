"""The S3 gateway of the tests' lakeFS, as boto3 and polars use it."""

import base64
import hashlib
import hmac
import io
import time
import zlib
from typing import Any

import polars as pl
import pytest
import urllib3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from ml_assets_tests.servers.lakefs import LakeFSServer, lakefs_server
from ml_assets_tests.servers.lakefs.clients import Demo, polars_options, s3_client


@pytest.fixture
def demo(server: LakeFSServer) -> Demo:
    return Demo(server)


@pytest.fixture(scope="module")
def s3(server: LakeFSServer) -> Any:
    return s3_client(server)


def refused(call: Any, **arguments: Any) -> tuple[int, str]:
    """The status and the code of a call that must not work."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


def keys(s3: Any, demo: Demo, prefix: str, **more: Any) -> list[str]:
    found = s3.list_objects_v2(Bucket=demo.repo, Prefix=prefix, **more)
    return [each["Key"] for each in found.get("Contents", ())]


# --- signatures -----------------------------------------------------------------------------------


def test_a_signature_of_another_key_is_refused(demo: Demo) -> None:
    stranger = s3_client(demo.server, "wrong")
    assert refused(stranger.list_objects_v2, Bucket=demo.repo) == (403, "SignatureDoesNotMatch")
    assert urllib3.request("GET", f"{demo.server.endpoint}/{demo.repo}").status == 403


def test_a_signature_of_version_two_is_taken_and_held_to_key_and_time(demo: Demo) -> None:
    old = s3_client(demo.server, signature_version="s3")
    where = {"Bucket": demo.repo, "Key": "main/a b/ü=1&2+3.txt"}
    old.put_object(**where, Body=b"1", Metadata={"k": "v"}, ContentType="text/plain")
    found = old.get_object(**where, ResponseContentType="text/html")
    assert (found["Body"].read(), found["Metadata"]) == (b"1", {"k": "v"})
    begun = old.create_multipart_upload(**where)["UploadId"]
    old.upload_part(**where, UploadId=begun, PartNumber=1, Body=b"x")
    stranger = s3_client(demo.server, "wrong", signature_version="s3")
    assert refused(stranger.get_object, **where) == (403, "SignatureDoesNotMatch")
    url, headers = f"{demo.server.endpoint}/{demo.repo}/main/a", {"Date": "yesterday"}
    asked = urllib3.request(
        "GET", url, headers={**headers, "Authorization": f"AWS {demo.server.access_key}:c2ln"}
    )
    assert b"<Code>MalformedDate</Code>" in asked.data


def test_a_client_of_the_gateway_that_was_sent_to_the_api_is_told_so(demo: Demo) -> None:
    astray = s3_client(demo.server, endpoint=f"{demo.server.endpoint}/api/v1")
    assert refused(astray.list_objects_v2, Bucket=demo.repo) == (
        404,
        "ErrNoSuchBucketPossibleAPIEndpoint",
    )


def test_a_presigned_url_of_the_gateway_is_good_for_its_method(s3: Any, demo: Demo) -> None:
    where = {"Bucket": demo.repo, "Key": "main/a b/ü=1&2+3.txt"}
    put = s3.generate_presigned_url("put_object", Params=where)
    assert urllib3.request("PUT", put, body=b"1").status == 200
    get = s3.generate_presigned_url("get_object", Params=where)
    assert urllib3.request("GET", get).data == b"1"
    assert urllib3.request("DELETE", get).status == 403


def test_an_old_signature_is_refused() -> None:
    with lakefs_server() as server:
        demo, s3 = Demo(server), s3_client(server)
        server.catalog.clock = lambda: time.time() + 3600
        assert refused(s3.list_objects_v2, Bucket=demo.repo) == (403, "RequestTimeTooSkewed")


def signed(server: LakeFSServer, key: str, body: bytes, payload: str, **more: str) -> AWSRequest:
    """A PUT whose signature covers ``payload`` as the content's hash."""
    headers = {"x-amz-content-sha256": payload, **more}
    request = AWSRequest("PUT", f"{server.endpoint}/{key}", headers=headers, data=body)
    auth = S3SigV4Auth(Credentials(server.access_key, server.secret_key), "s3", "us-east-1")
    auth.payload = lambda _: payload
    auth.add_auth(request)
    request.headers.replace_header("x-amz-content-sha256", payload)
    return request


def sent(request: AWSRequest) -> tuple[int, bytes]:
    answer = urllib3.request("PUT", request.url, headers=dict(request.headers), body=request.data)
    return answer.status, answer.data


def test_a_body_is_the_one_that_was_signed_or_is_not_signed_at_all(demo: Demo) -> None:
    key = f"{demo.repo}/main/a"
    hashed = hashlib.sha256(b"0123").hexdigest()
    assert sent(signed(demo.server, key, b"0123", hashed))[0] == 200
    assert sent(signed(demo.server, key, b"4567", hashed))[0] == 400
    assert demo.read("main", "a") == "0123"
    assert sent(signed(demo.server, key, b"free", "UNSIGNED-PAYLOAD"))[0] == 200
    assert demo.read("main", "a") == "free"


def chunked(server: LakeFSServer, request: AWSRequest, chunks: list[bytes]) -> bytes:
    """The body of STREAMING-AWS4-HMAC-SHA256-PAYLOAD; each chunk signs the one before it."""
    head = request.headers["Authorization"]
    scope = head.partition("Credential=")[2].partition(",")[0].partition("/")[2]
    moment, previous = request.headers["X-Amz-Date"], head.rpartition("Signature=")[2]
    key = f"AWS4{server.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    body, empty = b"", hashlib.sha256(b"").hexdigest()
    for chunk in [*chunks, b""]:
        hashed = hashlib.sha256(chunk).hexdigest()
        text = "\n".join(["AWS4-HMAC-SHA256-PAYLOAD", moment, scope, previous, empty, hashed])
        previous = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        body += f"{len(chunk):x};chunk-signature={previous}\r\n".encode() + chunk + b"\r\n"
    return body


def test_a_streamed_body_is_verified_chunk_by_chunk(demo: Demo) -> None:
    key, payload = f"{demo.repo}/main/a", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
    request = signed(demo.server, key, b"", payload)
    request.data = chunked(demo.server, request, [b"0123", b"45"])
    assert sent(request)[0] == 200
    assert demo.read("main", "a") == "012345"
    request.data = request.data.replace(b"0123", b"9999")
    assert sent(request)[0] == 403
    assert demo.read("main", "a") == "012345"


@pytest.mark.parametrize(("wrong", "status"), [(0, 200), (1, 500)])
def test_a_streamed_body_may_end_in_a_checksum(demo: Demo, wrong: int, status: int) -> None:
    key, payload = f"{demo.repo}/main/a", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    trailer = {"x-amz-trailer": "x-amz-checksum-crc32"}
    checksum = base64.b64encode((zlib.crc32(b"0123") ^ wrong).to_bytes(4, "big")).decode()
    body = f"4\r\n0123\r\n0\r\nx-amz-checksum-crc32:{checksum}\r\n\r\n".encode()
    assert sent(signed(demo.server, key, body, payload, **trailer))[0] == status
    assert demo.paths("main") == (["a"] if status == 200 else [])


# --- objects --------------------------------------------------------------------------------------


def test_an_object_is_written_and_read_at_any_reference(s3: Any, demo: Demo) -> None:
    more = {"ContentType": "text/csv", "Metadata": {"Rows": "3"}}
    put = s3.put_object(Bucket=demo.repo, Key="main/t/a.csv", Body=b"0123456789", **more)
    assert put["ETag"] == f'"{hashlib.md5(b"0123456789").hexdigest()}"'
    stats = demo.ask(demo.client.objects_api.stat_object, "main", "t/a.csv")
    assert stats.metadata.to_dict() == {"X-Amz-Meta-rows": "3"}  # lakeFS keeps the prefix
    made = demo.commit("main")
    demo.tag("v1", made)
    for reference in ("main", made, made[:10], "v1", "main~0"):
        where = {"Bucket": demo.repo, "Key": f"{reference}/t/a.csv"}
        got = s3.get_object(**where)
        assert (got["Body"].read(), got["Metadata"]) == (b"0123456789", {"rows": "3"})
        head = s3.head_object(**where)
        assert (head["ContentLength"], head["ContentType"]) == (10, "text/csv")
        part = s3.get_object(**where, Range="bytes=2-4")
        assert (part["Body"].read(), part["ContentRange"]) == (b"234", "bytes 2-4/10")
    assert refused(s3.get_object, **where, Range="bytes=10-") == (416, "InvalidRange")


def test_what_is_not_there_is_said_in_s3_words(s3: Any, demo: Demo) -> None:
    bucket = demo.repo
    assert refused(s3.get_object, Bucket=bucket, Key="main/a") == (404, "NoSuchKey")
    assert refused(s3.get_object, Bucket=bucket, Key="nowhere/a") == (404, "NoSuchKey")
    assert refused(s3.head_object, Bucket=bucket, Key="main/a") == (404, "404")
    assert refused(s3.get_object, Bucket="nobody", Key="main/a") == (404, "NoSuchBucket")
    put = {"Bucket": bucket, "Body": b""}
    assert refused(s3.put_object, Key="nowhere/a", **put) == (404, "NoSuchBucket")
    commit = demo.head()
    assert refused(s3.put_object, Key=f"{commit}/a", **put) == (404, "NoSuchBucket")
    demo.put("main", {"a": "1"})
    demo.server.collect(demo.repo, "main", "a")
    assert refused(s3.get_object, Bucket=bucket, Key="main/a") == (404, "NoSuchVersion")


def test_a_bucket_is_a_repository_and_a_reference_alone_is_nothing(s3: Any, demo: Demo) -> None:
    assert refused(s3.create_bucket, Bucket=demo.repo) == (409, "BucketAlreadyExists")
    assert refused(s3.create_bucket, Bucket="not-yet-there") == (501, "NotImplemented")
    assert refused(s3.delete_bucket, Bucket=demo.repo) == (405, "ERRLakeFSNotSupported")
    for key in ("main", "main/"):
        assert refused(s3.put_object, Bucket=demo.repo, Key=key, Body=b"")[0] == 404


def test_a_client_that_follows_redirects_is_sent_to_the_store(demo: Demo) -> None:
    demo.put("main", {"a": "1"})
    where = {"Bucket": demo.repo, "Key": "main/a"}
    url = s3_client(demo.server).generate_presigned_url("get_object", Params=where)
    agent = {"User-Agent": "reader s3RedirectionSupport"}
    assert urllib3.request("GET", url, headers=agent, redirect=False).status == 307
    assert urllib3.request("GET", url, headers=agent).data == b"1"


def test_a_write_may_ask_that_nothing_is_there(s3: Any, demo: Demo) -> None:
    where = {"Bucket": demo.repo, "Key": "main/a"}
    s3.put_object(**where, Body=b"1", IfNoneMatch="*")
    assert refused(s3.put_object, **where, Body=b"2", IfNoneMatch="*") == (
        412,
        "PreconditionFailed",
    )
    assert refused(s3.put_object, **where, Body=b"2", IfMatch='"x"') == (501, "NotImplemented")
    assert demo.read("main", "a") == "1"


def test_a_protected_branch_is_not_written_through_the_gateway(s3: Any, demo: Demo) -> None:
    demo.server.catalog.repository(demo.repo).settings.protected = ["main"]
    where = {"Bucket": demo.repo, "Key": "main/a"}
    assert refused(s3.put_object, **where, Body=b"") == (403, "WriteToProtectedBranch")


def test_objects_are_removed_one_by_one_and_together(s3: Any, demo: Demo) -> None:
    demo.put("main", {"a": "1", "b": "1", "c": "1"})
    s3.delete_object(Bucket=demo.repo, Key="main/a")
    s3.delete_object(Bucket=demo.repo, Key="main/a")  # again is no error
    many = {"Objects": [{"Key": "main/b"}, {"Key": "main/missing"}, {"Key": "nowhere/x"}]}
    answer = s3.delete_objects(Bucket=demo.repo, Delete=many)
    assert len(answer["Deleted"]) == 3
    assert demo.paths("main") == ["c"]


def test_an_object_is_copied_with_its_metadata_or_new(s3: Any, demo: Demo) -> None:
    bucket = demo.repo
    s3.put_object(Bucket=bucket, Key="main/a", Body=b"1", Metadata={"k": "old"})
    source = {"Bucket": bucket, "Key": "main/a"}
    s3.copy_object(Bucket=bucket, Key="main/b", CopySource=source)
    new = {"Metadata": {"k": "new"}, "MetadataDirective": "REPLACE"}
    s3.copy_object(Bucket=bucket, Key="main/c", CopySource=source, **new)
    assert s3.get_object(Bucket=bucket, Key="main/b")["Metadata"] == {"k": "old"}
    assert s3.get_object(Bucket=bucket, Key="main/c")["Metadata"] == {"k": "new"}
    missing = {"Bucket": bucket, "Key": "main/zzz"}
    copy = {"Bucket": bucket, "Key": "main/d", "CopySource": missing}
    assert refused(s3.copy_object, **copy) == (404, "NoSuchKey")


def test_what_the_gateway_does_not_do_it_says(s3: Any, demo: Demo) -> None:
    where = {"Bucket": demo.repo, "Key": "main/a"}
    s3.put_object(**where, Body=b"1")
    tags = {"TagSet": [{"Key": "k", "Value": "v"}]}
    asked = refused(s3.put_object_tagging, **where, Tagging=tags)
    assert asked == (405, "ERRLakeFSNotSupported")
    assert refused(s3.put_object_acl, **where, ACL="private") == (405, "ERRLakeFSNotSupported")
    demo.server.collect(demo.repo, "main", "a")
    source = {"Bucket": demo.repo, "Key": "main/a"}
    copied = refused(s3.copy_object, Bucket=demo.repo, Key="main/b", CopySource=source)
    assert copied == (400, "InvalidRequest")


# --- in parts -------------------------------------------------------------------------------------


def test_a_large_object_goes_in_parts(s3: Any, demo: Demo) -> None:
    content = bytes(range(256)) * (9 * 2**12)  # 9 MiB: two parts of boto3
    s3.upload_fileobj(io.BytesIO(content), demo.repo, "main/big")
    got = s3.get_object(Bucket=demo.repo, Key="main/big")
    assert got["Body"].read() == content
    assert "-" not in got["ETag"]  # lakeFS drops the number of parts
    assert demo.server.faults.count("PUT", r"main/big\?.*partNumber") == 2


def test_parts_are_listed_checked_and_given_up(s3: Any, demo: Demo) -> None:
    where = {"Bucket": demo.repo, "Key": "main/big"}
    begun = s3.create_multipart_upload(**where)
    upload = {**where, "UploadId": begun["UploadId"]}
    tags = [
        s3.upload_part(**upload, PartNumber=number, Body=b"x" * number)["ETag"] for number in (1, 2)
    ]
    assert [each["Size"] for each in s3.list_parts(**upload)["Parts"]] == [1, 2]
    uploads = s3.list_multipart_uploads(Bucket=demo.repo)["Uploads"]
    assert [each["UploadId"] for each in uploads] == [begun["UploadId"]]
    wrong = {"Parts": [{"PartNumber": 1, "ETag": tags[1]}]}
    assert refused(s3.complete_multipart_upload, **upload, MultipartUpload=wrong)[0] == 500
    assert demo.paths("main") == []  # nothing half done
    s3.abort_multipart_upload(**upload)
    right = {"Parts": [{"PartNumber": 1, "ETag": tags[0]}]}
    assert refused(s3.complete_multipart_upload, **upload, MultipartUpload=right)[0] == 500
    assert refused(s3.abort_multipart_upload, **upload) == (404, "NoSuchKey")


def test_uploads_that_are_under_way_are_listed_in_pages(s3: Any, demo: Demo) -> None:
    for name in ("b", "a", "c"):
        s3.create_multipart_upload(Bucket=demo.repo, Key=f"main/{name}")
    seen, marker = [], {}
    while True:
        page = s3.list_multipart_uploads(Bucket=demo.repo, MaxUploads=1, **marker)
        seen += [each["Key"] for each in page["Uploads"]]
        if not page["IsTruncated"]:
            break
        names = ("KeyMarker", "UploadIdMarker")
        marker = {name: page[f"Next{name}"] for name in names}
    assert seen == ["b", "a", "c"]  # in the order of their addresses, as the store lists them
    for unknown in ({"Prefix": "main/"}, {"Delimiter": "/"}, {"EncodingType": "url"}):
        asked = refused(s3.list_multipart_uploads, Bucket=demo.repo, **unknown)
        assert asked == (501, "NotImplemented")


def test_a_multipart_upload_may_ask_that_nothing_is_there(s3: Any, demo: Demo) -> None:
    where = {"Bucket": demo.repo, "Key": "main/big"}
    upload = {**where, "UploadId": s3.create_multipart_upload(**where)["UploadId"]}
    tag = s3.upload_part(**upload, PartNumber=1, Body=b"x")["ETag"]
    demo.put("main", {"big": "first"})
    parts = {"Parts": [{"PartNumber": 1, "ETag": tag}]}
    done = s3.complete_multipart_upload
    asked = refused(done, **upload, MultipartUpload=parts, IfNoneMatch="*")
    assert asked == (412, "PreconditionFailed")
    assert demo.read("main", "big") == "first"


# --- listings -------------------------------------------------------------------------------------


def test_a_bucket_lists_branches_and_a_branch_its_objects(s3: Any, demo: Demo) -> None:
    assert demo.repo in [each["Name"] for each in s3.list_buckets()["Buckets"]]
    assert [each["Name"] for each in s3.list_buckets(Prefix=demo.repo)["Buckets"]] == [demo.repo]
    s3.head_bucket(Bucket=demo.repo)
    demo.branch("work")
    demo.branch("quiet", hidden=True)
    demo.put("main", {"a/1": "1", "a/2": "1", "b": "1"})
    top = s3.list_objects_v2(Bucket=demo.repo, Delimiter="/")
    assert [each["Prefix"] for each in top["CommonPrefixes"]] == ["main/", "work/"]
    folded = s3.list_objects_v2(Bucket=demo.repo, Prefix="main/", Delimiter="/")
    assert [each["Prefix"] for each in folded["CommonPrefixes"]] == ["main/a/"]
    assert [each["Key"] for each in folded["Contents"]] == ["main/b"]
    assert keys(s3, demo, "main/a") == ["main/a/1", "main/a/2"]
    assert keys(s3, demo, "nowhere/") == []
    assert keys(s3, demo, "main/", StartAfter="main/a/1") == ["main/a/2", "main/b"]


@pytest.mark.parametrize("version", ["list_objects", "list_objects_v2"])
def test_a_listing_is_paged(s3: Any, demo: Demo, version: str) -> None:
    demo.put("main", {f"a{number}": "1" for number in range(5)})
    pages = s3.get_paginator(version).paginate(
        Bucket=demo.repo, Prefix="main/", PaginationConfig={"PageSize": 2}
    )
    sizes = [len(page["Contents"]) for page in pages]
    assert sizes == [2, 2, 1]


# --- polars ---------------------------------------------------------------------------------------


def test_polars_writes_to_a_branch_and_scans_a_commit(demo: Demo) -> None:
    options: dict[str, Any] = {
        "storage_options": polars_options(demo.server),
        "credential_provider": None,
    }
    for week in ("2013-01", "2013-02"):
        frame = pl.DataFrame({"x": range(1000)})
        where = f"s3://{demo.repo}/main/t/week={week}/part-0.parquet"
        frame.lazy().sink_parquet(where, **options)
    made = demo.commit("main")
    demo.put("main", {"t/week=2013-03/part-0.parquet": "not committed, not even Parquet"})
    scan = pl.scan_parquet(f"s3://{demo.repo}/{made}/t/", hive_partitioning=True, **options)
    found = scan.group_by("week").agg(pl.col("x").sum()).sort("week").collect()
    assert found.rows() == [("2013-01", 499500), ("2013-02", 499500)]
    glob = pl.scan_parquet(f"s3://{demo.repo}/{made}/t/*/*.parquet", **options)
    assert glob.select(pl.len()).collect().item() == 2000
    ranges = demo.server.faults.count("GET", f"{made}/t/week")
    assert ranges >= 2  # parts of files, not the branch
