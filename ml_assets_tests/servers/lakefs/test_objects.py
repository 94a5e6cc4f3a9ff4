"""The tests' lakeFS as lakefs-client sees it: objects, ranges, listings, presigned URLs."""

import time

import lakefs_sdk
import pytest
import urllib3
from lakefs_client import models

from ml_assets_tests.servers.lakefs import LakeFSServer, lakefs_server
from ml_assets_tests.servers.lakefs.clients import Content, Demo, sdk_client


@pytest.fixture
def demo(server: LakeFSServer) -> Demo:
    return Demo(server)


# --- objects --------------------------------------------------------------------------------------


def test_an_object_is_stored_with_its_checksum_and_metadata(demo: Demo) -> None:
    headers = {"Content-Type": "text/csv", "X-Lakefs-Meta-Rows": "3"}
    path = "/branches/main/objects?path=a%20b"
    answer = demo.http("POST", path, body=b"x,y\n", headers=headers)
    assert answer.status == 201
    stats = demo.ask(demo.client.objects_api.stat_object, "main", "a b")
    assert (stats.size_bytes, stats.content_type) == (4, "text/csv")
    assert stats.checksum == answer.json()["checksum"]
    assert stats.metadata.to_dict() == {"rows": "3"}
    assert stats.physical_address.startswith("s3://tests/")


def test_an_object_is_written_once_where_it_is_asked_for(demo: Demo) -> None:
    demo.put("main", {"a": "1"}, if_none_match="*")
    upload = demo.client.objects_api.upload_object
    again = demo.refused(upload, "main", "a", content=Content(b"2"), if_none_match="*")
    assert (again[0], "path already exists" in again[1]) == (412, True)
    demo.commit("main")
    assert (
        demo.refused(upload, "main", "a", content=Content(b"2"), if_none_match="*")[0] == 412
    )  # committed counts as there
    demo.ask(demo.client.objects_api.delete_object, "main", "a")
    demo.put("main", {"a": "3"}, if_none_match="*")
    assert demo.read("main", "a") == "3"
    other = demo.refused(upload, "main", "b", content=Content(b""), if_none_match="tag")
    assert other[0] == 501


def test_the_disposition_has_no_filename_which_the_old_client_cannot_take(demo: Demo) -> None:
    demo.put("main", {"a": "1"})
    get = demo.client.objects_api.get_object
    answer = demo.ask(get, "main", "a", _preload_content=False)
    assert answer.headers["Content-Disposition"] == "attachment"
    with pytest.raises(AttributeError):
        demo.ask(get, "main", "a")


@pytest.mark.parametrize(
    ("spec", "status", "text"),
    [
        ("bytes=2-4", 206, "234"),
        ("bytes=7-", 206, "789"),
        ("bytes=-3", 206, "789"),
        ("bytes=8-99", 206, "89"),
        ("bytes=10-", 416, ""),
        ("bytes=5-2", 416, ""),
    ],
)
def test_a_range_is_served_or_refused(demo: Demo, spec: str, status: int, text: str) -> None:
    demo.put("main", {"a": "0123456789"})
    get, head = demo.client.objects_api.get_object, demo.client.objects_api.head_object
    if status == 416:
        assert demo.refused(get, "main", "a", range=spec, _preload_content=False)[0] == 416
        assert demo.refused(head, "main", "a", range=spec)[0] == 416
        return
    answer = demo.ask(get, "main", "a", range=spec, _preload_content=False)
    assert (answer.status, answer.data.decode()) == (status, text)
    assert answer.headers["Content-Range"].endswith("/10")


def test_a_known_etag_is_not_sent_again(demo: Demo) -> None:
    demo.put("main", {"a": "1"})
    tag = demo.http("GET", "/refs/main/objects?path=a").headers["ETag"]
    again = demo.http("GET", "/refs/main/objects?path=a", headers={"If-None-Match": tag})
    assert (again.status, again.data) == (304, b"")


def test_a_listing_folds_at_the_delimiter_and_pages(demo: Demo) -> None:
    demo.put("main", {path: "1" for path in ("a/1", "a/2", "b", "c/x/1", "d")})
    assert demo.paths("main", delimiter="/") == ["a/", "b", "c/", "d"]
    assert demo.paths("main", prefix="c/", delimiter="/") == ["c/x/"]
    page = demo.ask(demo.client.objects_api.list_objects, "main", delimiter="/", amount=2)
    assert [each.path_type for each in page.results] == ["common_prefix", "object"]
    assert (page.pagination.has_more, page.pagination.next_offset) == (True, "b")
    assert demo.paths("main", delimiter="/", after="b") == ["c/", "d"]
    assert demo.paths("main", after="a/1") == ["a/2", "b", "c/x/1", "d"]


def test_objects_are_copied_and_removed(demo: Demo) -> None:
    first = demo.commit("main", {"a": "1", "b": "2"})
    objects = demo.client.objects_api
    copy = models.ObjectCopyCreation("a", src_ref=first)
    made = demo.ask(objects.copy_object, "main", "c", copy)
    old = demo.ask(objects.stat_object, "main", "a")
    assert (made.checksum, made.physical_address == old.physical_address) == (old.checksum, False)
    demo.ask(objects.delete_object, "main", "a")
    errors = demo.ask(objects.delete_objects, "main", models.PathList(["b", "missing"])).errors
    assert errors == []
    assert demo.seen("main") == {"c": "1"}
    assert demo.seen(first) == {"a": "1", "b": "2"}
    missing = models.ObjectCopyCreation("zzz")
    assert demo.refused(objects.copy_object, "main", "c", missing)[0] == 404


def test_what_is_missing_or_malformed_is_said(demo: Demo) -> None:
    objects = demo.client.objects_api
    assert demo.refused(objects.stat_object, "main", "a")[0] == 404
    assert demo.refused(objects.stat_object, "nowhere", "a")[0] == 404
    upload = objects.upload_object
    assert demo.refused(upload, "nowhere", "a", content=Content(b""))[0] == 404
    assert demo.refused(upload, "main", "", content=Content(b""))[0] == 400
    assert demo.refused(upload, "main", "a" * 1025, content=Content(b""))[0] == 400


def test_user_metadata_is_replaced_on_the_branch(demo: Demo) -> None:
    demo.commit("main", {"a": "1"})
    api = lakefs_sdk.ExperimentalApi(sdk_client(demo.server))
    wish = lakefs_sdk.UpdateObjectUserMetadata(set={"reviewed": "yes"})
    api.update_object_user_metadata(demo.repo, "main", "a", wish)
    stat = demo.client.objects_api.stat_object
    assert demo.ask(stat, "main", "a").metadata.to_dict() == {"reviewed": "yes"}
    assert demo.ask(stat, "main@", "a").metadata.to_dict() == {}


# --- presigned ------------------------------------------------------------------------------------


def link(demo: Demo, path: str, content: bytes, as_path: str = "", **more: object) -> object:
    """The way of a large file: an address, a PUT to the store, a link."""
    staging = demo.client.staging_api
    place = demo.ask(staging.get_physical_address, "main", path, presign=True)
    answer = urllib3.request("PUT", place.presigned_url, body=content)
    assert answer.status == 200
    said = models.StagingMetadata(place, answer.headers["ETag"], len(content))
    return demo.ask(staging.link_physical_address, "main", as_path or path, said, **more)


def test_a_presigned_upload_is_linked(demo: Demo) -> None:
    stats = link(demo, "big", b"0123456789")
    assert (stats.size_bytes, demo.read("main", "big")) == (10, "0123456789")


def test_an_address_is_good_for_its_own_path_only(demo: Demo) -> None:
    place = demo.ask(demo.client.staging_api.get_physical_address, "main", "a", presign=True)
    said = models.StagingMetadata(place, "0" * 32, 1)
    call = demo.client.staging_api.link_physical_address
    assert demo.refused(call, "main", "b", said)[0] == 400
    demo.branch("work")
    assert demo.refused(call, "work", "a", said)[0] == 400
    place.physical_address = place.physical_address.rpartition(",")[0]
    assert demo.refused(call, "main", "a", said)[0] == 400


def test_what_was_linked_and_never_uploaded_cannot_be_read(demo: Demo) -> None:
    place = demo.ask(demo.client.staging_api.get_physical_address, "main", "a")
    said = models.StagingMetadata(place, "0" * 32, 1)
    demo.ask(demo.client.staging_api.link_physical_address, "main", "a", said)
    get = demo.client.objects_api.get_object
    assert demo.refused(get, "main", "a", _preload_content=False)[0] == 410


def test_a_presigned_url_reads_without_credentials_and_only_so(demo: Demo) -> None:
    demo.put("main", {"a": "0123456789"})
    stats = demo.ask(demo.client.objects_api.stat_object, "main", "a", presign=True)
    url = stats.physical_address
    assert stats.physical_address_expiry > stats.mtime
    assert urllib3.request("GET", url).data == b"0123456789"
    part = urllib3.request("GET", url, headers={"Range": "bytes=2-4"})
    assert (part.status, part.data) == (206, b"234")
    assert urllib3.request("PUT", url, body=b"x").status == 403  # signed for GET
    assert urllib3.request("GET", url.replace("Expires=900", "Expires=999")).status == 403
    both = urllib3.request("GET", url, headers={"Authorization": "Basic eA=="})
    assert (both.status, b"Only one auth mechanism" in both.data) == (400, True)


def test_a_presigned_url_expires() -> None:
    with lakefs_server() as server:
        demo = Demo(server)
        demo.put("main", {"a": "1"})
        stats = demo.ask(demo.client.objects_api.stat_object, "main", "a", presign=True)
        assert urllib3.request("GET", stats.physical_address).status == 200
        server.catalog.clock = lambda: time.time() + 901
        late = urllib3.request("GET", stats.physical_address)
        assert (late.status, b"Request has expired" in late.data) == (403, True)


def test_reading_may_redirect_to_the_store(demo: Demo) -> None:
    demo.put("main", {"a": "1"})
    asked = "/refs/main/objects?path=a&presign=true"
    assert demo.http("GET", asked, redirect=False).status == 302
    assert demo.http("GET", asked).data == b"1"  # the client leaves its credentials behind


def test_a_presigned_multipart_upload_is_put_together(demo: Demo) -> None:
    api = demo.client.experimental_api
    begun = demo.ask(api.create_presign_multipart_upload, "main", "big", parts=2)
    parts = []
    for number, (url, text) in enumerate(zip(begun.presigned_urls, ("01234", "567"), strict=True)):
        tag = urllib3.request("PUT", url, body=text.encode()).headers["ETag"]
        parts.append(models.UploadPart(number + 1, tag))
    done = models.CompletePresignMultipartUpload(begun.physical_address, parts)
    call = api.complete_presign_multipart_upload
    stats = demo.ask(call, "main", begun.upload_id, "big", complete_presign_multipart_upload=done)
    assert (stats.size_bytes, stats.checksum[-2:]) == (8, "-2")
    assert demo.read("main", "big") == "01234567"


def test_a_part_may_be_copied_from_an_object(demo: Demo) -> None:
    demo.put("main", {"small": "0123456789"})
    begun = demo.ask(demo.client.experimental_api.create_presign_multipart_upload, "main", "big")
    path = f"/branches/main/staging/pmpu/{begun.upload_id}"
    parts = []
    for number, span in enumerate(({"range": "bytes=2-4"}, {}), start=1):
        source = {"repository": demo.repo, "ref": "main", "path": "small", **span}
        body = {"physical_address": begun.physical_address, "copy_source": source}
        done = demo.http("PUT", f"{path}/parts/{number}/copy?path=big", json=body)
        assert done.status == 204
        parts.append({"part_number": number, "etag": done.headers["ETag"]})
    body = {"physical_address": begun.physical_address, "parts": parts}
    assert demo.http("PUT", f"{path}?path=big", json=body).status == 200
    assert demo.read("main", "big") == "2340123456789"


@pytest.mark.parametrize(
    ("path", "address", "status"),
    [("", "", 400), ("big", "", 400), ("big", "s3://elsewhere/x", 400), ("other", "own", 400)],
)
def test_an_upload_in_parts_ends_at_the_address_that_was_handed_out(
    demo: Demo, path: str, address: str, status: int
) -> None:
    begun = demo.ask(demo.client.experimental_api.create_presign_multipart_upload, "main", "big")
    place = f"/branches/main/staging/pmpu/{begun.upload_id}"
    said = begun.physical_address if address == "own" else address
    parts = [{"part_number": 1, "etag": "x"}]
    for method, body in (("DELETE", {}), ("PUT", {"parts": parts})):
        answer = demo.http(method, f"{place}?path={path}", json={"physical_address": said, **body})
        assert answer.status == status, (method, answer.data)
    right = {"physical_address": begun.physical_address}
    assert demo.http("DELETE", f"{place}?path=big", json=right).status == 204


def test_an_empty_name_of_a_branch_is_refused_and_no_unknown_endpoint(demo: Demo) -> None:
    assert demo.http("POST", "/branches//staging/pmpu?path=a").status == 400
    assert demo.http("POST", "/branches/unknown/staging/pmpu?path=a").status == 404
