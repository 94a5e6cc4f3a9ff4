"""The tests' lakeFS as lakefs-client sees it: repositories, references, objects, settings."""

import urllib.request

import pytest
from lakefs_client import models

from ml_assets_tests.servers.lakefs import LakeFSServer, Setup, lakefs_server
from ml_assets_tests.servers.lakefs.clients import Content, Demo, rest_client


@pytest.fixture
def demo(server: LakeFSServer) -> Demo:
    return Demo(server)


# --- who may ask ----------------------------------------------------------------------------------


def test_a_wrong_key_is_refused_and_health_needs_none(server: LakeFSServer) -> None:
    stranger = Demo(server)
    stranger.client = rest_client(server, password="wrong")
    assert stranger.refused(stranger.client.branches_api.get_branch, "main")[0] == 401
    with urllib.request.urlopen(f"{server.endpoint}/api/v1/healthcheck") as answer:
        assert answer.status == 204


def test_an_unknown_endpoint_is_404(server: LakeFSServer) -> None:
    answer = Demo(server).http("GET", "/nothing")
    assert (answer.status, answer.json()) == (404, {"message": "invalid API endpoint"})


def test_the_configuration_says_whether_urls_can_be_presigned(server: LakeFSServer) -> None:
    assert rest_client(server).config_api.get_config().storage_config.pre_sign_support
    with lakefs_server(Setup(blockstore="local")) as local:
        config = rest_client(local).config_api.get_config()
        assert not config.storage_config.pre_sign_support
        demo = Demo(local)
        call = demo.client.staging_api.get_physical_address
        assert demo.refused(call, "main", "a", presign=True)[0] == 500


# --- repositories ---------------------------------------------------------------------------------


def test_a_repository_begins_with_one_commit_and_its_name_is_taken(demo: Demo) -> None:
    repositories = demo.client.repositories_api
    made = repositories.create_repository(
        models.RepositoryCreation(f"{demo.repo}-b", f"s3://b/{demo.repo}", default_branch="trunk")
    )
    assert made.default_branch == "trunk"
    assert [demo.log(), demo.paths("main")] == [["Repository created"], []]
    again = models.RepositoryCreation(made.id, "s3://elsewhere/x")
    name_taken = demo.refused(lambda _: repositories.create_repository(again))
    assert (name_taken[0], "not unique" in name_taken[1]) == (409, True)
    for wrong in (
        models.RepositoryCreation("other", "gs://b/other"),  # not this block store
        models.RepositoryCreation("other", f"s3://b/{demo.repo}"),  # in use
    ):
        assert demo.refused(lambda _, wish=wrong: repositories.create_repository(wish))[0] == 400
    demo.client.repositories_api.delete_repository(made.id)
    assert demo.refused(lambda _: repositories.get_repository(made.id))[0] == 404


def test_a_sample_comes_where_it_is_asked_for_on_a_branch_that_is_protected(demo: Demo) -> None:
    wish = models.RepositoryCreation(f"{demo.repo}-s", f"s3://b/{demo.repo}", sample_data=True)
    demo.repo = demo.client.repositories_api.create_repository(wish).id
    folders = demo.ask(demo.client.objects_api.list_objects, "main", delimiter="/").results
    assert [each.path for each in folders] == ["README.md", "data/", "images/", "lakes.parquet"]
    assert folders[3].size_bytes > 500_000
    assert len(demo.paths("main", prefix="images/")) == 29
    assert demo.repo in demo.read("main", "README.md")
    assert demo.log() == ["Add sample data", "Repository created"]
    upload = demo.client.objects_api.upload_object
    assert demo.refused(upload, "main", "a", content=Content(b"1"))[0] == 403


def test_lists_come_in_pages_with_prefix_and_after(demo: Demo) -> None:
    for number in range(5):
        demo.branch(f"b{number}")
        demo.tag(f"t{number}", "main")
    call = demo.client.branches_api.list_branches
    page = demo.ask(call, prefix="b", amount=2)
    assert [each.id for each in page.results] == ["b0", "b1"]
    assert (page.pagination.has_more, page.pagination.next_offset) == (True, "b1")
    rest = demo.ask(call, prefix="b", after="b1")
    assert [each.id for each in rest.results] == ["b2", "b3", "b4"]
    assert not rest.pagination.has_more
    tags = demo.ask(demo.client.tags_api.list_tags, after="t3")
    assert [each.id for each in tags.results] == ["t4"]


# --- branches, tags, expressions ------------------------------------------------------------------


def test_a_branch_is_answered_with_the_bare_commit_id(demo: Demo) -> None:
    assert demo.branch("work") == demo.head("main")


def test_a_hidden_branch_works_and_is_not_listed(demo: Demo) -> None:
    demo.branch("quiet", hidden=True)
    demo.commit("quiet", {"a": "1"})
    listed = demo.ask(demo.client.branches_api.list_branches).results
    assert [each.id for each in listed] == ["main"]
    shown = demo.http("GET", "/branches?show_hidden=true").json()["results"]
    assert [each["id"] for each in shown] == ["main", "quiet"]


@pytest.mark.parametrize("name", ["a/b", "-a", "a b", "a.b", "ü"])
def test_a_branch_is_called_by_letters_digits_dashes(demo: Demo, name: str) -> None:
    wish = models.BranchCreation(name, "main")
    assert demo.refused(demo.client.branches_api.create_branch, wish)[0] == 400


@pytest.mark.parametrize("name", ["a/b", "a..b", "a b", "a^", "a.lock", "@", "a:b"])
def test_a_tag_is_called_as_git_would(demo: Demo, name: str) -> None:
    wish = models.TagCreation(name, "main")
    assert demo.refused(demo.client.tags_api.create_tag, wish)[0] == 400


def test_a_name_is_of_one_thing_only(demo: Demo) -> None:
    demo.branch("work")
    demo.tag("v1.0", "work")
    branches, tags = demo.client.branches_api, demo.client.tags_api
    work = models.BranchCreation("work", "main")
    assert demo.refused(branches.create_branch, work)[0] == 409
    assert demo.refused(tags.create_tag, models.TagCreation("work", "main"))[0] == 409
    assert demo.refused(tags.create_tag, models.TagCreation("v1.0", "main"))[0] == 409
    demo.tag("t-1", "work")
    tag_taken = models.BranchCreation("t-1", "main")
    assert demo.refused(branches.create_branch, tag_taken)[0] == 409
    nowhere = models.BranchCreation("x", "nowhere")
    assert demo.refused(branches.create_branch, nowhere)[0] == 404


def test_the_default_branch_stays_and_another_goes(demo: Demo) -> None:
    demo.branch("work")
    delete = demo.client.branches_api.delete_branch
    assert demo.refused(delete, "main")[0] == 403
    demo.ask(delete, "work")
    assert demo.refused(delete, "work")[0] == 404
    assert demo.refused(demo.client.objects_api.list_objects, "work")[0] == 404


def test_expressions_lead_to_commits(demo: Demo) -> None:
    first = demo.commit("main", {"a": "1"})
    demo.branch("work")
    side = demo.commit("work", {"b": "1"})
    second = demo.commit("main", {"a": "2"})
    merge = demo.merge("work", "main")
    demo.put("main", {"a": "staged"})
    demo.tag("release", second)
    get = demo.client.commits_api.get_commit
    expected = {
        "main": merge,
        "main~1": second,
        "main^2": side,
        "main^2~1": first,
        "main~2": first,
        "main^0": merge,
        "release": second,
        "release~": first,
        first[:12]: first,
    }
    assert {name: demo.ask(get, name).id for name in expected} == expected
    assert [demo.read(ref, "a") for ref in ("main", "main@", "main$")] == ["staged", "2", "staged"]
    assert demo.refused(get, "main^3")[0] == 400
    assert demo.refused(get, "main~x")[0] == 400
    assert demo.refused(get, "release@")[0] == 400
    assert demo.refused(get, "main~9")[0] == 404
    assert demo.refused(get, "f" * 64)[0] == 404


# --- settings -------------------------------------------------------------------------------------


def test_a_protected_branch_takes_merges_only(demo: Demo) -> None:
    call = demo.client.repositories_api.set_branch_protection_rules
    demo.ask(call, [models.BranchProtectionRule("ma*")])
    demo.branch("work")
    demo.commit("work", {"a": "1"})
    upload = demo.client.objects_api.upload_object
    refusal = demo.refused(upload, "main", "b", content=Content(b""))
    assert (refusal[0], "cannot write to protected branch" in refusal[1]) == (403, True)
    wish = models.CommitCreation("m", allow_empty=True)
    assert demo.refused(demo.client.commits_api.commit, "main", wish)[0] == 403
    demo.merge("work", "main")
    assert demo.seen("main") == {"a": "1"}
    rules = demo.ask(demo.client.repositories_api.get_branch_protection_rules)
    assert [rule.pattern for rule in rules] == ["ma*"]


def test_a_read_only_repository_takes_nothing(server: LakeFSServer) -> None:
    demo = Demo(server)
    server.catalog.repository(demo.repo).read_only = True
    upload = demo.client.objects_api.upload_object
    assert demo.refused(upload, "main", "a", content=Content(b""))[0] == 403
    branch = models.BranchCreation("b", "main")
    assert demo.refused(demo.client.branches_api.create_branch, branch)[0] == 403
    tag = models.TagCreation("t", "main")
    assert demo.refused(demo.client.tags_api.create_tag, tag)[0] == 403


def test_garbage_rules_are_kept_and_a_tag_keeps_nothing(demo: Demo) -> None:
    api = demo.client.repositories_api
    assert demo.refused(api.get_gc_rules)[0] == 404
    rules = models.GarbageCollectionRules(
        7, [models.GarbageCollectionRule(branch_id="main", retention_days=30)]
    )
    demo.ask(api.set_gc_rules, rules)
    assert demo.ask(api.get_gc_rules).default_retention_days == 7
    first = demo.commit("main", {"a": "1"})
    demo.commit("main", {"a": "2"})
    last = demo.commit("main", {"a": "3"})
    demo.tag("release", first)
    assert demo.server.collect_garbage(demo.repo, days_later=20) == 0
    assert demo.server.collect_garbage(demo.repo, days_later=40) == 2
    get = demo.client.objects_api.get_object
    gone = demo.refused(get, "release", "a", _preload_content=False)
    assert (gone[0], "No data" in gone[1]) == (410, True)
    assert demo.ask(demo.client.objects_api.stat_object, "release", "a").size_bytes == 1
    assert demo.read(last, "a") == "3"


def test_uncommitted_bytes_are_not_garbage(demo: Demo) -> None:
    demo.ask(demo.client.repositories_api.set_gc_rules, models.GarbageCollectionRules(0, []))
    demo.commit("main", {"a": "1"})
    demo.put("main", {"b": "staged"})
    demo.server.collect_garbage(demo.repo, days_later=99)
    assert demo.seen("main") == {"a": "1", "b": "staged"}
